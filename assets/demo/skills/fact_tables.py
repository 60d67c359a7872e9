"""Tables for the facts skill besides countries. Left and right of a pair are separated by '='."""


def _pairs(text: str) -> list[tuple[str, str]]:
    left_right = (pair.split("=") for line in text.strip().splitlines() for pair in line.split(";"))
    return [(left.strip(), right.strip()) for left, right in left_right]


ELEMENTS = _pairs("""
hydrogen=H; helium=He; lithium=Li; beryllium=Be; boron=B; carbon=C; nitrogen=N; oxygen=O
fluorine=F; neon=Ne; sodium=Na; magnesium=Mg; aluminium=Al; silicon=Si; phosphorus=P; sulfur=S
chlorine=Cl; argon=Ar; potassium=K; calcium=Ca; scandium=Sc; titanium=Ti; vanadium=V; chromium=Cr
manganese=Mn; iron=Fe; cobalt=Co; nickel=Ni; copper=Cu; zinc=Zn; gallium=Ga; germanium=Ge
arsenic=As; selenium=Se; bromine=Br; krypton=Kr; silver=Ag; cadmium=Cd; tin=Sn; iodine=I
xenon=Xe; caesium=Cs; barium=Ba; tungsten=W; platinum=Pt; gold=Au; mercury=Hg; lead=Pb
bismuth=Bi; radon=Rn; radium=Ra; uranium=U; plutonium=Pu
""")

OPPOSITES = _pairs("""
hot=cold; big=small; up=down; left=right; fast=slow; old=new; day=night; black=white; open=closed
early=late; full=empty; hard=soft; heavy=light; high=low; happy=sad; long=short; loud=quiet
near=far; rich=poor; strong=weak; thick=thin; wet=dry; wide=narrow; young=old; true=false
good=bad; clean=dirty; deep=shallow; first=last; inside=outside; light=dark; love=hate; win=lose
buy=sell; push=pull; begin=end; always=never; above=below; ancient=modern; arrive=depart
asleep=awake; beautiful=ugly; bitter=sweet; brave=cowardly; bright=dim; calm=stormy; cheap=expensive
clever=stupid; cool=warm; correct=wrong; cruel=kind; dangerous=safe; easy=difficult; enemy=friend
entrance=exit; even=odd; fat=slim; find=lose; forget=remember; freeze=melt; fresh=stale; give=take
guilty=innocent; healthy=ill; huge=tiny; include=exclude; increase=decrease; junior=senior
laugh=cry; lazy=busy; lead=follow; lock=unlock; major=minor; maximum=minimum; more=less; north=south
east=west; positive=negative; public=private; raise=lower; rough=smooth; same=different; sharp=blunt
simple=complex; sink=float; start=stop; straight=crooked; tall=short; tight=loose; victory=defeat
""")

BABIES = _pairs("""
dog=puppy; cat=kitten; cow=calf; horse=foal; sheep=lamb; goat=kid; pig=piglet; hen=chick
duck=duckling; goose=gosling; swan=cygnet; lion=cub; bear=cub; wolf=pup; deer=fawn; frog=tadpole
kangaroo=joey; owl=owlet; eagle=eaglet; hare=leveret; elephant=calf; whale=calf; seal=pup
butterfly=caterpillar; spider=spiderling; fish=fry
""")

SOUNDS = _pairs("""
dog=woof; cat=meow; cow=moo; sheep=baa; pig=oink; horse=neigh; duck=quack; hen=cluck; lion=roar
frog=croak; owl=hoot; bee=buzz; snake=hiss; mouse=squeak; wolf=howl; donkey=hee-haw; crow=caw
pigeon=coo; turkey=gobble; goose=honk
""")

AUTHORS = _pairs("""
Hamlet=William Shakespeare; Romeo and Juliet=William Shakespeare; Macbeth=William Shakespeare
Faust=Johann Wolfgang von Goethe; Don Quixote=Miguel de Cervantes; War and Peace=Leo Tolstoy
Anna Karenina=Leo Tolstoy; Crime and Punishment=Fyodor Dostoevsky; Oliver Twist=Charles Dickens
A Christmas Carol=Charles Dickens; Pride and Prejudice=Jane Austen; Emma=Jane Austen
Jane Eyre=Charlotte Bronte; Wuthering Heights=Emily Bronte; Moby-Dick=Herman Melville
Dracula=Bram Stoker; Frankenstein=Mary Shelley; Treasure Island=Robert Louis Stevenson
The Odyssey=Homer; The Iliad=Homer; The Divine Comedy=Dante Alighieri; Les Miserables=Victor Hugo
Madame Bovary=Gustave Flaubert; The Three Musketeers=Alexandre Dumas; Candide=Voltaire
The Little Prince=Antoine de Saint-Exupery; The Trial=Franz Kafka; The Metamorphosis=Franz Kafka
The Hobbit=J. R. R. Tolkien; The Time Machine=H. G. Wells; Animal Farm=George Orwell
The Jungle Book=Rudyard Kipling; Alice in Wonderland=Lewis Carroll; Peter Pan=J. M. Barrie
The Great Gatsby=F. Scott Fitzgerald; Ulysses=James Joyce; Walden=Henry David Thoreau
Robinson Crusoe=Daniel Defoe; Gulliver's Travels=Jonathan Swift; Tom Sawyer=Mark Twain
The Call of the Wild=Jack London; The Cherry Orchard=Anton Chekhov; Heidi=Johanna Spyri
The Name of the Rose=Umberto Eco; Pinocchio=Carlo Collodi; The Republic=Plato; Aeneid=Virgil
""")

COLOURS = _pairs("""
grass=green; the sky=blue; snow=white; coal=black; blood=red; a banana=yellow; a lemon=yellow
an orange=orange; a carrot=orange; a tomato=red; a strawberry=red; milk=white; chocolate=brown
a flamingo=pink; an elephant=grey; a polar bear=white; a raven=black; the sun=yellow; a leaf=green
the sea=blue; an aubergine=purple; a pumpkin=orange; an emerald=green; a ruby=red; a sapphire=blue
""")

MIXES = _pairs("""
red and yellow=orange; blue and yellow=green; red and blue=purple; red and white=pink
black and white=grey
""")

PLANETS = ["Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune"]
PLANET_NOTES = [
    "the smallest planet and the closest to the Sun",
    "the hottest planet, under thick clouds",
    "our home, the only planet known to carry life",
    "the red planet, with the highest volcano we know",
    "the largest planet, with a great red storm",
    "the planet with the bright rings",
    "a cold planet that lies on its side",
    "the farthest planet, with the strongest winds",
]
ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"]

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = [
    "January", "February", "March", "April", "May", "June", "July",
    "August", "September", "October", "November", "December",
]  # fmt: skip

LEGS = _pairs("""
a spider=eight; an insect=six; an ant=six; a bee=six; a dog=four; a cat=four; a horse=four
a bird=two; a hen=two; a snake=no; a fish=no; a crab=ten; an octopus=no; a human=two; a cow=four
""")

MISC = _pairs("""
the [largest|biggest] ocean=The largest ocean is the Pacific Ocean.
the [longest|longest known] river in Africa=The longest river in Africa is the Nile.
the highest mountain [in the world|on Earth|of the world]=The highest mountain is Mount Everest.
the [largest|biggest] animal [in the world|on Earth]=The largest animal is the blue whale.
the fastest [land animal|animal on land]=The fastest land animal is the cheetah.
the tallest animal [in the world|on Earth]=The tallest animal is the giraffe.
the [largest|biggest] bird [in the world|on Earth]=The largest bird is the ostrich.
the [largest|biggest] hot desert [in the world|on Earth]=The largest hot desert is the Sahara.
the [largest|biggest] continent [in the world|on Earth]=The largest continent is Asia.
the smallest continent [in the world|on Earth]=The smallest continent is Australia.
the [largest|biggest] country [in the world|on Earth]=The largest country is Russia.
the smallest country [in the world|on Earth]=The smallest country is Vatican City.
the [largest|biggest] island [in the world|on Earth]=The largest island is Greenland.
the deepest lake [in the world|on Earth]=The deepest lake is Lake Baikal.
the hardest [natural mineral|natural material]=The hardest natural material is diamond.
the boiling point of water [in Celsius|in degrees Celsius]=Water boils at 100 degrees Celsius.
the freezing point of water [in Celsius|in degrees Celsius]=Water freezes at 0 degrees Celsius.
the speed of light [in a vacuum|in empty space]=Light travels at about 300000 km per second.
the star [closest to|nearest to] the Earth=The star closest to the Earth is the Sun.
the chemical formula [of water|for water]=The chemical formula of water is H2O.
the chemical formula [of table salt|for table salt]=The chemical formula of table salt is NaCl.
the [largest|biggest] organ of the [human body|body]=The largest organ of the human body is the skin.
the number of days in [a year|a normal year]=A year has 365 days.
the number of days in a leap year=A leap year has 366 days.
the number of continents [on Earth|in the world]=There are seven continents.
the number of planets [in the solar system|around the Sun]=The solar system has eight planets.
the number of sides [of a triangle|in a triangle]=A triangle has three sides.
the number of sides [of a hexagon|in a hexagon]=A hexagon has six sides.
the number of strings [on a violin|of a violin]=A violin has four strings.
the number of keys [on a piano|of a piano]=A piano has 88 keys.
the [first man|first person] on the Moon=The first person on the Moon was Neil Armstrong.
the [first man|first person] in space=The first person in space was Yuri Gagarin.
the painter of the Mona Lisa=Leonardo da Vinci painted the Mona Lisa.
the painter of [Starry Night|The Starry Night]=Vincent van Gogh painted The Starry Night.
the composer of the [ninth symphony|Ode to Joy]=Ludwig van Beethoven composed the ninth symphony.
the composer of [The Magic Flute|the Magic Flute]=Mozart composed The Magic Flute.
the inventor of the [telephone|first telephone]=Alexander Graham Bell invented the telephone.
the discoverer of [penicillin|the drug penicillin]=Alexander Fleming discovered penicillin.
the [author|father] of the theory of relativity=Albert Einstein made the theory of relativity.
the gas that plants [need|take in]=Plants take in carbon dioxide.
""")
