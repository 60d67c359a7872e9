"""Real words for the words skill. HELD_OUT words are never spelled, reversed or sorted in training."""

TRAINING = """
able acid acre actor adult agent album alarm amber angle ankle anvil apron arena arrow aspen attic
autumn avenue badge bagel baker ballet bamboo banner barley barrel basin basket beacon beard beast
bench berry bishop blade blank blanket blaze bloom board bonus border bottle boulder branch brass
bread breeze brick bridge brook broom brush bubble bucket budget bundle burger butter button cabin
cable cactus camel camera candle canoe canvas canyon carbon cargo carpet carton castle cattle cedar
cellar cello cement cereal chain chair chalk chapel charm cheese cherry chest chief choir chord
circle circus citrus clamp clay clerk cliff cloak clock cloth cloud clover coach coast cobweb cocoa
coffee collar colony comet comic compass concert copper coral corner cotton couch cousin cradle
crater cream creek crew crown crumb crystal cube curtain cushion cycle dagger daisy dance dawn
debate decade deck desert desk dinner dish doctor donkey donor door dough dragon drama drawer dream
dress drift drum dust eagle easel echo eel effort elbow elder ember emblem empire energy engine
error essay event fabric factory falcon family farmer feast feather fence ferry fever fiber fiddle
field figure filter finger flag flame flask fleet flint flock flour flower flute foam folder forest
fork fossil fountain fox frame fridge fruit funnel galaxy gallery game garlic gate gem ghost giant
ginger glacier glass globe glove glue goblet grain grape gravel grill grocer groove guest guitar gulf
habit hail hammer hamster handle harbor harp harvest hat hawk hazel heart hedge helmet herald herb
heron hill hinge hobby hockey holly honey hood hook horn hotel humor hunter hut ink inlet insect iris
ivory ivy jacket jaguar jar jazz jelly jet jewel jockey jolly journey judge juice jumper jungle jury
kettle kidney king kiosk kite knife knight knot label lace ladder lagoon lake lamp lantern laser
laurel lava lawn layer leaf leather legend lemon lens letter level lever lid lime linen lizard
lobster local locker lodge logic lotus lunch lung lyric magnet maize mammal mango manor maple marble
market mask mast match meadow medal melon member menu metal meteor minute mirror mist model moment
monk moon mosaic moss motor mountain mouth mud museum music mustard myth nail napkin nectar needle
nest net nickel noble noodle nose notice novel nurse nut oak oar oasis object ocean olive onion opera
orbit orchard organ otter oven owner oxygen oyster package paddle page paint palace palm panda panel
paper parade parcel park parrot party pasta pastry path patrol peach peanut pearl pebble pedal pencil
pepper perfume petal phone photo piano picnic pillow pilot pine pipe pistol pixel pizza plank planet
plant plate plaza plum pocket poem poet polar pond pony poppy port poster potato powder prairie
prince prism prize profit puddle pulse pump pupil puppet purple puzzle pyramid quarry queen quest
quilt rabbit radio raft rail rain ranch random raven razor recipe record reef reward ribbon rice ring river
road robe robin robot rocket roof rose route rubber rug ruler saddle safari sail salad salmon salt
sand sandal sauce scale scarf school scout screen seat secret seed shadow shark sheep shelf shell
shield ship shirt shoe shore shovel shower silk silver singer skate sketch skirt sky sled sleeve
slope smile smoke snail snow soap socket sofa soil soldier sonnet soup spark spice spider spine
spoon spring square squid stable stadium stamp star statue steam steel stem stone storm story stove
straw stream street sugar summit sunset swamp swan sweater sword table tailor tango target tavern
taxi tea temple tennis tent theory thorn thread throne thumb thunder ticket tiger timber tin toast
tomato tongue tooth torch tower town trail train travel tray treaty tree tribe trophy truck trumpet
tulip tunnel turtle uncle unicorn union urn valley vapor vault velvet verse vessel villa village vine
violet vision voice volcano vowel voyage wafer wagon walnut wasp watch water wave wax weaver wedding
whale wheat wheel whistle willow wind window wing winner wire wizard wolf wood wool world wrist yacht
yarn yeast yogurt zebra zero zinc zone
""".split()

HELD_OUT = """
garden bottom winter summer hunger signal monkey dolphin hazard ladle
lumber magpie marine master mentor mitten monster mortal nomad nugget orchid panther parsley
pasture pelican plaster poison pottery pretzel quiver raisin rascal
rattle rescue rhythm sailor sandwich sapling saucer sector sermon shelter shrimp siren
slipper sparrow spinach stallion stapler sultan supper swallow tackle tamper tangle tartan temper
thimble tinker toffee transit tremor turban turnip tuxedo vanilla vendor vulture wander warden
""".split()
