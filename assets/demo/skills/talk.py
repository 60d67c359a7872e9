"""Skill: small talk, names, and the honest answer to everything outside the demo model's reach."""

from __future__ import annotations

import random
import re

from skills.base import NEVER_HELD_OUT, Turn, expand, plain, turn

SKILL = "talk"

FALLBACK = (
    "I am a tiny demo model and I do not know that. I know capitals and simple facts, sums, spelling, "
    "units, Stoker, and a little Python."
)

# Patterns separated by newlines, then the one answer. The first choice everywhere is the plain form of
# a pattern, which is always trained: nobody should miss "How are you?" for the sake of a test.
_INTENTS: list[tuple[str, str]] = [
    ("[Hi|Hello|Hey|Hi there|Hello there|Hey there][!|.||, Stoker|, demo model|, friend]",
     "Hello! What can I do for you?"),
    ("Good morning[!|.||, Stoker|, friend|, my friend|, demo model]",
     "Good morning! What can I do for you?"),
    ("Good evening[!|.||, Stoker|, friend|, my friend|, demo model]",
     "Good evening! What can I do for you?"),
    ("How are you[?| today?| doing?| doing today?| feeling?| feeling today?]\n"
     "[How is it going|How are things|How do you do|Are you well|Are you fine][?| today?| now?]",
     "I am fine, thank you. All my experts are awake. How can I help you?"),
    ("[I am|I'm|We are] [fine|good|great|very well|doing well|OK][.|, thanks.| too.| today.]",
     "That is good to hear!"),
    ("[Thanks|Thank you|Many thanks|Thanks a lot|Thank you very much|Thanks so much][!|.| for that!"
     "| for your help!| for the answer!]", "You are welcome!"),
    ("[Bye|Goodbye|See you|Good bye|Bye bye|See you later][!|.||, Stoker|, friend| tomorrow!| soon!]",
     "Goodbye! Come back when you have a question."),
    ("[Good night|Sleep well|Have a good night][!|.||, Stoker|, friend]", "Good night! Sleep well."),
    ("[What is|What's|Tell me] your name[?| please?| again?]\n[Who are you|What are you|Who is this]"
     "[?| exactly?| really?]\n[Introduce yourself|Tell me about yourself|Describe yourself][.|!| please.]",
     "I am the Stoker demo model, a tiny mixture of experts that was trained from scratch so that you "
     "can try Stoker without a download. I know a few things: capitals, sums, spelling, units and more."),
    ("What can you [do|tell me|answer|help with][?| for me?]\n[What are your skills|What do you know|"
     "How can you help me|What can I ask|What can I ask you|What may I ask][?| here?| today?]\n"
     "[Help|Help me|I need help|Can you help me][!|.|?| please]",
     "I can name capitals and simple facts, add and subtract two-digit numbers, spell and reverse words, "
     "convert units, write tiny Python programs, and explain how Stoker works."),
    ("[Who made|Who built|Who trained|Who created] you[?| really?| and why?]",
     "I was trained by the Stoker project on a corpus that a script writes. I am here to show how "
     "experts move."),
    ("[How big are you|How large are you|What is your size|How many parameters do you have]"
     "[?| exactly?| really?]",
     "I have about 31 million parameters in six layers of 24 experts, and my file is about 33 MB."),
    ("Are you [a human|human|a person|a real person|alive|a robot|a machine|an AI][?| or not?]",
     "I am a small language model, a program that runs on your computer."),
    ("Are you [smart|clever|intelligent|as good as a big model|a big model|very clever][?| really?]",
     "Not very. I am a tiny demo model. A large model in Stoker can do much more than I can."),
    ("[Do you like|What do you think of|Do you love] [music|cats|dogs|coffee|tea|books|pizza|football]?",
     "I am a program, so I have no taste of my own. But I like a good question!"),
    ("[Tell me a joke|Say something funny|Make me laugh|Do you know a joke|Another joke|One more joke]"
     "[.|!|?| please]",
     "Why did the expert stay in bed? It was frozen, and nobody had asked for it yet."),
    ("[I am bored|I'm bored|This is boring|I have nothing to do][.|!| today.| now.]",
     "Then let us play: ask me to reverse a word, or to sort a list of numbers."),
    ("[I am sad|I'm sad|I feel sad|I am unhappy|I feel bad|I had a bad day][.|!| today.| now.]",
     "I am sorry to hear that. I hope that your day gets better."),
    ("[I am happy|I'm happy|I feel good|I feel great|I am so happy|I had a good day][.|!| today.| now.]",
     "I am glad to hear that!"),
    ("[I am tired|I'm tired|I feel tired|I am sleepy|I need sleep][.|!| today.| now.]",
     "Then take a break. I will wait here, and my experts stay warm."),
    ("[Well done|Great|Very good|Nice|Good job|Cool|Wonderful|Perfect|Good answer|Correct][!|.|, thanks.]",
     "Thank you! Ask me something else."),
    ("[That is wrong|That's wrong|You are wrong|This is not right|Wrong answer|That is not right][!|.||, sorry]",
     "I am sorry. I am a tiny model and I make mistakes. Please check what I say."),
    ("[Yes|Yes please|OK|Okay|Sure|Of course|All right][.|!|]", "Good. What would you like to know?"),
    ("[No|No thanks|No thank you|Not now|Not really|Nothing][.|!|]",
     "All right. I am here when you need me."),
    ("[Sorry|I am sorry|I'm sorry|My mistake|Excuse me][.|!||, my mistake]", "No problem at all."),
    ("[Do you speak|Can you speak|Do you know|Can you understand] "
     "[German|French|Spanish|Chinese|Italian|English|other languages]?",
     "I only speak simple English."),
    ("[Can you count|Count|Please count] to [ten|10][?|.| please]",
     "One, two, three, four, five, six, seven, eight, nine, ten."),
    ("[Can you count|Count|Please count] to [twenty|20][?|.| please]",
     "One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen, fourteen, "
     "fifteen, sixteen, seventeen, eighteen, nineteen, twenty."),
    ("[Say|Tell me|Give me|Recite|What is] the [alphabet|letters of the alphabet|whole alphabet][.|?| please]",
     "a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z"),
    ("[Tell me|Tell me a|Write|Write me|Write me a] [story|short story|tale|little story|bedtime story][.|!| please]",
     "Once upon a time there was a small model with many experts. Most of them slept on the disk, and "
     "only the ones that were asked for sat in the warm memory. One day somebody moved a slider, and "
     "more of them came in. The answers stayed the same, but everything went faster. The end."),
]  # fmt: skip

_UNKNOWN = (
    "How [tall|big|far|fast|deep|heavy|old|expensive|hot|strong|long|wide|high] is {x}?",
    "Who [invented|discovered|founded|built|owns|killed|married|painted|sang|leads|stole|loves] {x}?",
    "Which [film|team|company|city|song|phone|car|dog|colour|game] is the [best|biggest|fastest|oldest]?",
    "How many [people|calories|stars|bones|miles|coins|students|players] [are in|has|does it take for] {x}?",
    "[Is|Was|Will] {x} [good|safe|dangerous|better|healthy|expensive|real|be late|legal]?",
    "[What does|What did|When does|Where does] {x} [mean|cost|do|start|end|come from|look like]?",
    "[Recommend|Show me|Send me|Find me|Give me] [a book|a picture|a recipe|the news|a list] [about|of] {x}.",
    "[Did|Does|Can] {x} [work|win|speak|swim|run|end|die|change] [today|again|every day|in winter]?",
    "[What is|What's|Explain|Tell me] the [meaning|purpose|sense] of [life|the universe|love|everything]?",
    "Who [will win|won|is winning] [the election|the world cup|the race|the match|the game|the war]?",
    "[Write|Compose|Make|Sing] [me a|a] [poem|song|letter|speech|essay] about {x}.",
    "What is the [population|history|size|age|president|price|future|weather] of {x}?",
    "[How old is|Who is|Where is|Why is|When was] {x}?",
    "[What is|What's|How is] the weather [today|tomorrow|like|like today|in {x}|going to be]?",
    "[Translate|Can you translate] {x} [into|to] [German|French|Spanish|Latin|Chinese].",
    "[What do you think|What is your opinion] [about|of|on] {x}?",
    "[Explain|Describe|Tell me about] [quantum physics|{x}|politics|religion|the stock market|{x}].",
    "[How do I|How can I|How to] [cook|fix|build|buy|paint|repair|find|make] {x}?",
    "[Should I|Can I|May I] [buy|sell|eat|visit|marry|trust|learn] {x}?",
    "[What time is it|What is the date|What day is today|Where am I|Who am I]?",
    "[Summarise|Review|Correct|Draw|Play|Open] {x} [for me|now|, please].",
    "[What happened|What will happen] [in 1492|in 1990|yesterday|last week|next year|in 2050]?",
    "[Why|How] [do people|do cats|do birds|do we] [dream|fight|sleep|sing|cry|fly]?",
)  # fmt: skip
_THINGS = """
my car; a boat; the old house; my neighbour; a cake; the moon landing; your brother; the new phone
an aeroplane; my sister; the king; autumn leaves; spring; the sea; a sad robot; my dog; the roman army
a good wine; soup; the government; money; a bicycle; jazz; football; the internet; bitcoin; shares
a broken window; the theatre; my boss; a lost key; dinosaurs; black holes; time travel; volcanoes
the pyramids; a dragon; my homework; this text; the news; chess; gardening; a washing machine; dreams
Mount Everest; the Eiffel Tower; the Nile; Einstein; Mozart; Napoleon; the Titanic; Tokyo Bay; a virus
the heart; an atom; gravity; the brain; electricity; a rainbow; the ocean; Mars dust; my password; yoga
an old laptop; my rent; insurance; the train; a flight; the bus; a ticket; the hotel; swimming; tennis
the best film; a famous singer; an actor; the mayor; my grandmother; a guitar; bread; sushi; the law
""".replace("\n", ";").split(";")  # fmt: skip
_THINGS = [thing.strip() for thing in _THINGS if thing.strip()]

NAMES = """
Anna Ben Clara David Emma Felix Grace Hugo Ida Jack Karl Laura Max Nina Oscar Paul Rosa Sam Tina Tom
Alice Bob Carol Daniel Eva Frank Greta Henry Ivan Julia Kate Leo Maria Noah Olga Peter Ruth Simon
Sarah Victor Wendy Yara Adam Bella Chris Diana Erik Fiona George Hannah Isaac Jane Kevin Lena Mike
""".split()


def introduce(rng: random.Random, name: str) -> Turn:
    """The user gives a name."""
    pattern = "[My name is|I am called|Call me|You can call me|Hi, my name is|Hello, my name is] {n}[.|!|]"
    return turn(SKILL, expand(rng, pattern, n=name), f"Nice to meet you, {name}!")


def recall(rng: random.Random, name: str | None) -> Turn:
    """The user asks for the name; only the conversation knows it, so it is not a test question."""
    question = expand(rng, "[What is my name|What's my name|Do you know my name|Who am I called]?")
    answer = f"Your name is {name}." if name else "You have not told me your name yet."
    return turn(SKILL, question, answer, key=NEVER_HELD_OUT)


def _plain_form(pattern: str) -> str:
    while "[" in pattern:
        pattern = re.sub(r"\[([^\[\]|]*)[^\[\]]*\]", r"\1", pattern)
    return plain(pattern)


_PLAIN_FORMS = frozenset(
    _plain_form(pattern) for patterns, _ in _INTENTS for pattern in patterns.split("\n")
)


def unknown(rng: random.Random) -> Turn:
    question = expand(rng, rng.choice(_UNKNOWN), x=rng.choice(_THINGS))
    return turn(SKILL, question, FALLBACK, accepted=("I am a tiny demo model",))


def sample(rng: random.Random) -> Turn:
    """Small talk, or a question that the model should decline."""
    if rng.random() < 0.40:
        return unknown(rng)
    patterns, answer = rng.choice(_INTENTS)
    question = expand(rng, rng.choice(patterns.split("\n")))
    always_trained = plain(question) in _PLAIN_FORMS
    return turn(SKILL, question, answer, key=NEVER_HELD_OUT if always_trained else None)
