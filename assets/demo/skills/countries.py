"""Countries for the facts skill: one line is name | capital | continent [| language | currency]."""

_TABLE = """
Afghanistan|Kabul|Asia
Albania|Tirana|Europe
Algeria|Algiers|Africa|Arabic|dinar
Andorra|Andorra la Vella|Europe
Angola|Luanda|Africa
Argentina|Buenos Aires|South America|Spanish|peso
Armenia|Yerevan|Asia
Australia|Canberra|Oceania|English|Australian dollar
Austria|Vienna|Europe|German|euro
Azerbaijan|Baku|Asia
Bahamas|Nassau|North America
Bahrain|Manama|Asia
Bangladesh|Dhaka|Asia|Bengali|taka
Barbados|Bridgetown|North America
Belarus|Minsk|Europe
Belgium|Brussels|Europe|Dutch|euro
Belize|Belmopan|North America
Benin|Porto-Novo|Africa
Bhutan|Thimphu|Asia
Bolivia|Sucre|South America
Botswana|Gaborone|Africa
Brazil|Brasilia|South America|Portuguese|real
Brunei|Bandar Seri Begawan|Asia
Bulgaria|Sofia|Europe|Bulgarian|euro
Burundi|Gitega|Africa
Cambodia|Phnom Penh|Asia
Cameroon|Yaounde|Africa
Canada|Ottawa|North America|English|Canadian dollar
Chad|N'Djamena|Africa
Chile|Santiago|South America|Spanish|peso
China|Beijing|Asia|Chinese|yuan
Colombia|Bogota|South America|Spanish|peso
Costa Rica|San Jose|North America
Croatia|Zagreb|Europe|Croatian|euro
Cuba|Havana|North America|Spanish|peso
Cyprus|Nicosia|Europe
Czechia|Prague|Europe|Czech|koruna
Denmark|Copenhagen|Europe|Danish|krone
Djibouti|Djibouti City|Africa
Dominica|Roseau|North America
Ecuador|Quito|South America
Egypt|Cairo|Africa|Arabic|Egyptian pound
El Salvador|San Salvador|North America
Eritrea|Asmara|Africa
Estonia|Tallinn|Europe|Estonian|euro
Ethiopia|Addis Ababa|Africa|Amharic|birr
Fiji|Suva|Oceania
Finland|Helsinki|Europe|Finnish|euro
France|Paris|Europe|French|euro
Gabon|Libreville|Africa
Gambia|Banjul|Africa
Georgia|Tbilisi|Asia
Germany|Berlin|Europe|German|euro
Ghana|Accra|Africa|English|cedi
Greece|Athens|Europe|Greek|euro
Grenada|Saint George's|North America
Guatemala|Guatemala City|North America
Guinea|Conakry|Africa
Guyana|Georgetown|South America
Haiti|Port-au-Prince|North America
Honduras|Tegucigalpa|North America
Hungary|Budapest|Europe|Hungarian|forint
Iceland|Reykjavik|Europe|Icelandic|krona
India|New Delhi|Asia|Hindi|rupee
Indonesia|Jakarta|Asia|Indonesian|rupiah
Iran|Tehran|Asia|Persian|rial
Iraq|Baghdad|Asia|Arabic|dinar
Ireland|Dublin|Europe|English|euro
Israel|Jerusalem|Asia|Hebrew|shekel
Italy|Rome|Europe|Italian|euro
Jamaica|Kingston|North America
Japan|Tokyo|Asia|Japanese|yen
Jordan|Amman|Asia
Kazakhstan|Astana|Asia
Kenya|Nairobi|Africa|Swahili|shilling
Kosovo|Pristina|Europe
Kuwait|Kuwait City|Asia
Kyrgyzstan|Bishkek|Asia
Laos|Vientiane|Asia
Latvia|Riga|Europe|Latvian|euro
Lebanon|Beirut|Asia
Lesotho|Maseru|Africa
Liberia|Monrovia|Africa
Libya|Tripoli|Africa
Liechtenstein|Vaduz|Europe
Lithuania|Vilnius|Europe|Lithuanian|euro
Luxembourg|Luxembourg City|Europe
Madagascar|Antananarivo|Africa
Malawi|Lilongwe|Africa
Malaysia|Kuala Lumpur|Asia|Malay|ringgit
Maldives|Male|Asia
Mali|Bamako|Africa
Malta|Valletta|Europe
Mauritania|Nouakchott|Africa
Mauritius|Port Louis|Africa
Mexico|Mexico City|North America|Spanish|peso
Moldova|Chisinau|Europe
Monaco|Monaco City|Europe
Mongolia|Ulaanbaatar|Asia
Montenegro|Podgorica|Europe
Morocco|Rabat|Africa|Arabic|dirham
Mozambique|Maputo|Africa
Myanmar|Naypyidaw|Asia
Namibia|Windhoek|Africa
Nepal|Kathmandu|Asia|Nepali|rupee
Netherlands|Amsterdam|Europe|Dutch|euro
New Zealand|Wellington|Oceania|English|New Zealand dollar
Nicaragua|Managua|North America
Niger|Niamey|Africa
Nigeria|Abuja|Africa|English|naira
North Korea|Pyongyang|Asia
North Macedonia|Skopje|Europe
Norway|Oslo|Europe|Norwegian|krone
Oman|Muscat|Asia
Pakistan|Islamabad|Asia|Urdu|rupee
Panama|Panama City|North America
Papua New Guinea|Port Moresby|Oceania
Paraguay|Asuncion|South America
Peru|Lima|South America|Spanish|sol
Philippines|Manila|Asia|Filipino|peso
Poland|Warsaw|Europe|Polish|zloty
Portugal|Lisbon|Europe|Portuguese|euro
Qatar|Doha|Asia
Romania|Bucharest|Europe|Romanian|leu
Russia|Moscow|Europe|Russian|ruble
Rwanda|Kigali|Africa
Samoa|Apia|Oceania
San Marino|San Marino City|Europe
Saudi Arabia|Riyadh|Asia|Arabic|riyal
Senegal|Dakar|Africa|French|franc
Serbia|Belgrade|Europe|Serbian|dinar
Seychelles|Victoria|Africa
Sierra Leone|Freetown|Africa
Slovakia|Bratislava|Europe|Slovak|euro
Slovenia|Ljubljana|Europe|Slovenian|euro
Somalia|Mogadishu|Africa
South Africa|Pretoria|Africa|English|rand
South Korea|Seoul|Asia|Korean|won
South Sudan|Juba|Africa
Spain|Madrid|Europe|Spanish|euro
Sri Lanka|Sri Jayawardenepura Kotte|Asia
Sudan|Khartoum|Africa
Suriname|Paramaribo|South America
Sweden|Stockholm|Europe|Swedish|krona
Switzerland|Bern|Europe|German|franc
Syria|Damascus|Asia
Taiwan|Taipei|Asia
Tajikistan|Dushanbe|Asia
Tanzania|Dodoma|Africa
Thailand|Bangkok|Asia|Thai|baht
Togo|Lome|Africa
Tonga|Nuku'alofa|Oceania
Tunisia|Tunis|Africa|Arabic|dinar
Turkey|Ankara|Asia|Turkish|lira
Turkmenistan|Ashgabat|Asia
Uganda|Kampala|Africa
Ukraine|Kyiv|Europe|Ukrainian|hryvnia
United Arab Emirates|Abu Dhabi|Asia|Arabic|dirham
United Kingdom|London|Europe|English|pound
United States|Washington|North America|English|dollar
Uruguay|Montevideo|South America|Spanish|peso
Uzbekistan|Tashkent|Asia
Vanuatu|Port Vila|Oceania
Venezuela|Caracas|South America|Spanish|bolivar
Vietnam|Hanoi|Asia|Vietnamese|dong
Yemen|Sanaa|Asia
Zambia|Lusaka|Africa
Zimbabwe|Harare|Africa
"""

Country = tuple[str, ...]

COUNTRIES: list[Country] = [tuple(line.split("|")) for line in _TABLE.strip().splitlines()]
