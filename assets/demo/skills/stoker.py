"""Skill: what Stoker is, in the words of its design."""

from __future__ import annotations

import random

from skills.base import Turn, expand, turn

SKILL = "stoker"
_IN = "[| in Stoker]"

_TIERS: list[tuple[str, str]] = [
    ("hot", "A hot expert is pinned in a slot of the device memory, because the profile ranks it high. "
     "It is always ready."),
    ("warm", "A warm expert sits in the shared ring of device slots, because it was used recently. "
     "It leaves when newer experts need the slot."),
    ("cold", "A cold expert waits in main memory. It must cross the bus, or be computed by the CPU, "
     "when it is needed."),
    ("frozen", "A frozen expert lies only in the model file on the disk. It is read into main memory "
     "before it is needed."),
]  # fmt: skip
_TIER_PATTERNS = (
    "[What is|What's|Explain|Describe] a {t} expert" + _IN + "?",
    "What does {t} mean[?| in Stoker?| here?| on the map?]",
    "[What are|Explain|Where are|Where do I find] {t} experts" + _IN + "?",
    "[When is|Why is|Where is] an expert {t}?",
    "[Explain|Tell me|Define] [the word {t}|what {t} means|what a {t} expert is].",
)  # fmt: skip

_INTENTS: list[tuple[str, str]] = [
    ("[What is|What's|Explain] Stoker[?| for?| exactly?]\n[Tell me|Say something|Tell me more] about Stoker.\n"
     "[What does Stoker do|What is Stoker good for|What can Stoker do|Why do I need Stoker]?\n"
     "[Describe|Introduce] Stoker[.| to me.| in a few words.]",
     "Stoker is a desktop app and an engine that runs large mixture-of-experts models on an ordinary PC. "
     "It keeps the busy experts in fast memory and the others in main memory or on the disk. You can "
     "watch them move, and a slider trades memory for speed while it runs."),
    ("[How does|Explain how|Tell me how|Describe how] Stoker [work|works|run a model|runs a model][?|.]\n"
     "[How does it work|Explain how it works|How does this app work|How does the engine work][?|.]",
     "Stoker reads a model from a GGUF file and measures the free memory. A router picks a few experts "
     "for every token. The experts that are used most stay hot in device memory, recent ones are warm in "
     "the ring, the rest is cold in main memory or frozen on the disk. Stoker learns from your traffic "
     "which experts to keep, and fetches the others in time."),
    ("What [does the slider do|is the slider|is the slider for|does the slider change][?| in Stoker?]\n"
     "[Explain|Describe] the slider.\n[Why is there|What happens when I move|What if I move] [a|the] slider?\n"
     "[How do I use|Tell me about|When should I move] the slider[?| in Stoker?]",
     "The slider sets the memory budget. More memory keeps more experts close and is faster, less memory "
     "is slower. The answers stay the same."),
    ("What is an expert[?| in Stoker?| in a model?| here?]\n[Explain|Describe|Define] [an expert|experts][.| to me.]\n"
     "What are [experts|the experts][?| in Stoker?| in a model?]\n"
     "[Tell me|Explain] what an expert is.",
     "An expert is the gate, up and down matrices of one place in one layer. The router picks a few "
     "experts for every token, and an expert is the unit that Stoker moves."),
    ("What is [the|a|the warm] ring[?| in Stoker?| for?| of slots?]\n[Explain|Describe|Define] the ring[.| to me.| of slots.]\n"
     "[What does the ring do|Why is there a ring|How does the ring work|Tell me about the ring][?|.]",
     "The ring is a shared set of device slots for warm experts. Recently used experts enter it, and the "
     "ones that were not used for the longest time leave."),
    ("What is [the|a|my] profile[?| in Stoker?| for?| file?]\n[Explain|Describe|Define] the profile[.| to me.| in Stoker.]\n"
     "[What does the profile do|Why is there a profile|How does the profile work|Tell me about the profile][?|.]",
     "The profile counts how often each expert is used. The counts fade with time and are stored per "
     "model, so that Stoker knows which experts to keep hot after a restart."),
    ("What is [the|a|my|the memory] budget[?| in Stoker?| for?]\n[Explain|Describe|Define] the budget[.| to me.| in Stoker.]\n"
     "[What does the budget mean|How does the budget work|Tell me about the budget][?|.]",
     "The budget is how many bytes Stoker may use on the device for everything: dense weights, cache, "
     "scratch space and experts."),
    ("[Do|Will|Can] [the answers|answers|the tokens|your answers] [change|differ|get worse] with [the budget|less memory|"
     "the slider|a smaller budget]?\n[What is|What's|Explain|What does] one answer[?| in Stoker?| mean?]\n"
     "Does [the budget|the slider|less memory|the cache] [change|affect|hurt|alter] [the answer|the answers|quality]?",
     "No token changes. The same model, prompt and seed give the same answer at every budget and every "
     "position of the slider. Stoker calls this one answer."),
    ("What is [a slot|a device slot|the arena|a slot of the arena][?| in Stoker?| for?]\n"
     "[Explain|Describe|Define] [a slot|the arena|slots][.| to me.| in Stoker.]",
     "A slot is a piece of device memory that holds one expert. All slots together are the arena."),
    ("What is [a placement|the placement|placement][?| in Stoker?| for?]\n"
     "[Explain|Describe|Define] [placement|the placement][.| to me.| in Stoker.]",
     "The placement is the plan that says which experts are hot and how many slots the ring has."),
    ("What is [a router|the router][?| in Stoker?| for?| in a model?]\n"
     "[Explain|Describe|Define] [a router|the router][.| to me.]\n[What does|How does] the router [do|work]?",
     "The router is a small matrix in every layer. It scores all experts for each token and picks the best few."),
    ("What is a mixture of experts[?| model?]\n[Explain|Describe|Define] [a mixture of experts|MoE|mixture of experts][.| to me.]\n"
     "What [is|does] MoE [stand for|mean|model]?\n[What is|Explain] [MoE|a MoE model|an MoE model][?|.]",
     "A mixture of experts is a model whose layers hold many experts, but use only a few of them for each "
     "token. So the model can be large while each step stays cheap."),
    ("[What does|What do] the [map|picture|live map|colours|colors][ show| mean| of experts show]?\n"
     "[What is|Explain|Describe|Tell me about] the [map|live map|map of experts|expert map][?|.]",
     "The map shows every expert of every layer and where it sits: hot, warm, cold or frozen. Change the "
     "topic and you will see other experts light up."),
    ("[What are|Name|List|Explain|Tell me] the [tiers|four tiers|memory tiers|levels|four states][.| of memory.| in Stoker.]\n"
     "[Where can|Where does] an expert [be|live|sit]?",
     "There are four tiers. Hot experts are pinned on the device, warm ones sit in the ring, cold ones "
     "wait in main memory, and frozen ones lie on the disk."),
    ("[How can I|How do I|Can I] make [it|Stoker|you|the model] [faster|quicker|run faster][?| please?]\n"
     "[Why is it slow|Why is Stoker slow|Why are you slow|Why is it so slow]?",
     "Move the slider to a larger budget, so that more experts stay in fast memory. A few answers on the "
     "same topic also warm up the ring."),
    ("[What is|What's|Explain] [GGUF|a GGUF file|the GGUF format][?| exactly?]\n"
     "[What does|Which files does|What kind of model does] Stoker [run|read|open|load]?",
     "GGUF is a file format for model weights. Stoker opens mixture-of-experts models in GGUF files, "
     "also in many pieces."),
    ("[Which|What] [systems|computers|platforms] does Stoker [run on|support|need]?\n"
     "Does Stoker [run on|support|work on] [Windows|Linux|my PC|a laptop|an old PC]?\n"
     "[Do I need|Does Stoker need] [a GPU|a graphics card|a big computer|the cloud]?",
     "Stoker runs on ordinary Windows and Linux PCs. With a graphics card it keeps experts there, without "
     "one it runs on the CPU."),
    ("[How do I|How can I|Can I] [get|download|add|try|load] [a model|another model|a bigger model|a better model][?| in Stoker?]",
     "Open the library in the window and choose a model. Stoker shows what fits your memory and downloads it."),
    ("[Is my|Does my] [data|chat|text] [private|safe|leave my computer|go to the cloud]?\n"
     "[Do you|Does Stoker] [send my data|use the internet|need the internet|spy on me][?| for chats?]",
     "Your chats stay on your computer. The engine runs here, and only downloads of models use the network."),
    ("[Why is it called|Why the name|What does the name mean,|Where does the name come from,] Stoker?",
     "A stoker feeds a furnace with coal. Stoker feeds the device with the experts that it needs next."),
]  # fmt: skip


def sample(rng: random.Random) -> Turn:
    """A question about Stoker with its one answer."""
    if rng.random() < 0.25:
        tier, answer = rng.choice(_TIERS)
        return turn(SKILL, expand(rng, rng.choice(_TIER_PATTERNS), t=tier), answer)
    patterns, answer = rng.choice(_INTENTS)
    return turn(SKILL, expand(rng, rng.choice(patterns.split("\n"))), answer)
