"""Every sentence that the window shows, in one place."""

from __future__ import annotations

APP = "Stoker"
APP_ID = "io.github.stoker.Stoker"
DEMO_MODEL = "Demo model"
COMMAND_HELP = "Chat with Mixture-of-Experts models on this computer and see where they are."
COMMAND_FILE = "GGUF file to open; without it, the model of the last time"

# -- conversations -----------------------------------------------------------------------------
NEW_CHAT = "New chat"
SEARCH = "Search conversations"
CONVERSATIONS = "Conversations"
UNTITLED = "New chat"
RENAME = "Rename…"
RENAME_TITLE = "Rename conversation"
RENAME_PROMPT = "Title"
DELETE = "Delete…"
DELETE_TITLE = "Delete conversation?"
DELETE_CONFIRM = "Delete"
CANCEL = "Cancel"
CLOSE = "Close"
NO_CONVERSATIONS = "Your conversations appear here."
NOTHING_FOUND = "No conversation has this text."
TODAY = "Today"
YESTERDAY = "Yesterday"


def delete_question(title: str) -> str:
    return f"“{title}” will be removed from this computer. This cannot be undone."


def conversations_set_aside(path: str) -> str:
    return f"The file of your conversations is damaged. It was kept as {path}, a new one is used."


def conversations_newer(path: str) -> str:
    return (
        f"{path} was written by a newer Stoker and is left as it is. "
        "Conversations of this session are not saved."
    )


def conversations_not_opened(path: str, reason: str) -> str:
    return f"{path} cannot be opened ({reason}). Conversations of this session are not saved."


def conversation_not_read(reason: str) -> str:
    return f"This conversation could not be read ({reason})."


def conversation_not_saved(reason: str) -> str:
    return (
        f"The conversation could not be saved ({reason}). It is kept in memory and saved with the "
        "next message: free some space, then go on."
    )


UNSAVED_TITLE = "Close without saving?"
UNSAVED_TEXT = (
    "Some messages could not be written to the disk. If you close the window now, they are lost."
)
UNSAVED_CLOSE = "Close anyway"


def settings_set_aside(path: str, reason: str) -> str:
    if reason:
        return f"The settings in {path} cannot be read ({reason}). Defaults are used."
    return f"The settings file was damaged. It was kept as {path}; defaults are used."


def settings_not_saved(reason: str) -> str:
    return f"The settings could not be saved ({reason}). They hold until the window closes."


# -- chat --------------------------------------------------------------------------------------
EMPTY_TITLE = "What would you like to know?"
EMPTY_TEXT = "Everything runs on this computer. Nothing you write leaves it."
EXAMPLES = (
    ("Capital", "What is the capital of France?"),
    ("Arithmetic", "What is 17 plus 25?"),
    ("Spelling", "Spell the word ember."),
    ("The slider", "What does the slider do?"),
)
COMPOSER = "Message"
COMPOSER_HINT = "Ask something"
COMPOSER_HELP = "Enter sends, Shift+Enter starts a new line"
SEND = "Send message"
STOP = "Stop answer"
COPY_MESSAGE = "Copy message"
COPY_CODE = "Copy code"
COPIED = "Copied"
REGENERATE = "Answer again"
EDIT = "Edit message"
EDIT_SAVE = "Send again"
EDIT_NOTE = "The messages after this one will be replaced."
THINKING = "Thinking…"
THOUGHTS = "Thoughts"
CODE = "Code"
EARLIER = "Show earlier messages"
TRANSCRIPT = "Conversation"
YOU = "You"
ANSWER = "Answer"
WAITING = "Reading the prompt…"
TO_END = "Go to the newest message"
ANSWER_READY = "The answer is ready"
STATE_NOTES = {
    "stopped": "stopped",
    "interrupted": "interrupted",
    "failed": "not answered",
}
LENGTH_NOTE = "reached the token limit of the settings"
ENGINE_NOT_READY = "The engine is still loading: the question is sent when it is ready."
ENGINE_DOWN = "The engine is not running. Restart it to continue."


def thoughts(seconds: float) -> str:
    whole = round(seconds)
    if not seconds:  # of a conversation that was kept before this was measured
        return THOUGHTS
    if whole < 60:
        return f"Thought for {max(whole, 1)} s"
    return f"Thought for {whole // 60} min {whole % 60} s"


def tool_call(name: str) -> str:
    return f"Tool call: {name}"


def answer_meta(tokens: int, rate: str) -> str:
    word = "token" if tokens == 1 else "tokens"
    return f"{tokens} {word} · {rate} tok/s" if rate else f"{tokens} {word}"


APPROXIMATE = "≈ approximate"


def approximate_help(bias: float) -> str:
    return (
        f"The engine ran with a residency bias of {bias:g}: experts in memory took the place of "
        "others that the model would have chosen. Without the bias this answer may be different."
    )


def answering_elsewhere(title: str) -> str:
    return f"Answering in “{title}”…"


def lost_connection(reason: str) -> str:
    return f"The connection to the engine broke: {reason}"


def request_refused(status: int) -> str:
    return f"The engine refused the request (HTTP {status})."


# -- experts -----------------------------------------------------------------------------------
EXPERTS = "Experts"
MAP = "Expert map"
MAP_HELP = "Every cell is one expert, every band one layer. Arrow keys move the cursor."
TABLE = "Experts by layer"
SHOW_TABLE = "Show as table"
SHOW_MAP = "Show as map"
ENLARGE = "Enlarge the map"
REDUCE = "Back to the chat"
LEGEND = "Legend"
HIT_RATE = "hit rate"
NO_HIT_RATE = "The hit rate appears with the first answer"
HIT_RATE_HELP = "Share of routed expert uses that were served from hot and warm experts"
NO_MAP = "The map appears when the model is loaded."
TIER_NAMES = ("frozen", "cold", "warm", "hot")  # by protocol.Tier
TIER_HELP = (
    "only in the model file on the disk",
    "in main memory, outside the budget",
    "in a slot of the budget, not proven yet or little used of late",
    "in a slot of the budget, and used much in the last few dozen tokens",
)
TABLE_COLUMNS = ("Layer", "Hot", "Warm", "Cold", "Frozen", "Uses", "Hit rate")
HOVER_HINT = "Point at a cell, or move with the arrow keys"


def cell(layer: int, expert: int, tier: str, uses: int, age: str) -> str:
    used = "not used yet" if uses == 0 else f"used {uses}× · last {age}"
    return f"Layer {layer} · expert {expert} · {tier} · {used}"


def layer(number: int, uses: str, share: str) -> str:
    return f"Layer {number} · used {uses}× · hit rate {share}"


def age(seconds: float) -> str:
    if seconds < 1.5:
        return "just now"
    if seconds < 90:
        return f"{seconds:.0f} s ago"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min ago"
    return f"{seconds / 3600:.0f} h ago"


def tier_line(experts: str, size: str) -> str:
    return f"{experts} · {size}"


def map_shape(layers: int, experts: int) -> str:
    return f"{layers} layers × {experts} experts"


# -- memory ------------------------------------------------------------------------------------
MEMORY = "Memory"
SLIDER = "Memory for the model"
SLIDER_HELP = "More memory keeps more experts close."
SAME_ANSWERS = "The answers are the same at every position"
APPROXIMATE_ANSWERS = "Answers are approximate: they depend on this position"
LEAST = "least"
EVERYTHING_FITS = "everything fits"
NO_BUDGET = "Known when the model is loaded"
APPLYING = "applying…"
PREDICTED = "predicted"


def slots_line(slots: str, total: str, share: str) -> str:
    return f"Room for {slots} of {total} experts ({share})"


def budget_parts(base: str, arena: str) -> str:
    return f"{base} for the model itself + {arena} for experts"


def withheld(size: str) -> str:
    return f"Other programs need {size} of it for now"


def predicted_hits(share: str) -> str:
    return f"Would have served up to {share} of the uses so far"


CURVE = "Predicted speed by memory"


def curve_text(least: str, most: str) -> str:
    return f"From about {least} tokens/s with the least memory to {most} when everything fits"


def what_if(rate: str, share: str) -> str:
    return f"About {rate} tokens/s, {share} from this memory"


def over_available(size: str) -> str:
    return f"{size} more than the memory that is free now: the system may become slow."


# -- engine and status ---------------------------------------------------------------------------
PHASES = {
    "stopped": "Engine stopped",
    "starting": "Starting the engine",
    "reading": "Reading the model file",
    "weights": "Loading weights",
    "experts": "Loading experts",
    "ready": "Ready",
    "failed": "Not loaded",
    "died": "Engine stopped",
}
STATES = {"idle": "Ready", "prompt": "Reading the prompt", "answer": "Answering"}
PROGRESS = "Loading progress"
CONTEXT_METER = "Context used"
RESTART = "Restart engine"
SHOW_LOG = "Show log"
LOG_TITLE = "Engine log"
LOG_EMPTY = "The engine has written nothing yet."
COPY_LOG = "Copy all"
BACK_TO_DEMO = "Back to the demo model"
TRY_AGAIN = "Try again"
DISMISS = "Dismiss"
NOTICE = "Notice"
START_TIMEOUT = "The engine did not answer within 60 seconds."
BAD_GREETING = "The engine's first line is not what this window understands."


def other_protocol(theirs: int, ours: int) -> str:
    return (
        f"The engine speaks version {theirs} of the protocol, this window version {ours}. "
        "Install both from the same release."
    )


def no_start(reason: str) -> str:
    return f"The engine could not be started: {reason}"


def died(reason: str) -> str:
    return f"The engine stopped unexpectedly ({reason}). Your conversation is kept."


def exit_reason(code: int, crashed: bool) -> str:
    return f"signal {code}" if crashed else f"exit code {code}"


def back_to(name: str) -> str:
    return f"Back to {name}"


def open_failed(name: str, reason: str) -> str:
    return f"“{name}” cannot be opened. {reason}"


def tokens_per_s(rate: str) -> str:
    return f"{rate} tok/s"


def context_line(used: str, size: str) -> str:
    return f"{used} / {size}"


def context_text(used: str, size: str) -> str:
    return f"{used} of {size} tokens of context used"


def engine_memory(size: str) -> str:
    return f"engine {size}"


def queue_line(count: int) -> str:
    return f"{count} waiting"


def progress_line(done: str, total: str) -> str:
    return f"{done} of {total}"


# -- window --------------------------------------------------------------------------------------
MODEL_MENU = "Model"
OPEN_MODEL = "Open model file…"
OPEN_DIALOG = "Open a model"
OPEN_FILTER = "GGUF models (*.gguf);;All files (*)"
RECENT = "Recent models"
NOT_FOUND = "The file does not exist."
NOT_GGUF = "It is not a .gguf file."
DROP_HERE = "Drop a .gguf file to open it"
TOGGLE_LIST = "Show or hide the conversations"
TOGGLE_MAP = "Show or hide the experts"
SETTINGS_TITLE = "Settings"
KEYBOARD = "Keyboard"
SHORTCUTS = (
    ("Enter", "send the message"),
    ("Shift+Enter", "new line"),
    ("Esc", "stop the answer"),
    ("Ctrl+N", "new chat"),
    ("Ctrl+O", "open a model"),
    ("Ctrl+R", "restart the engine"),
    ("Ctrl+F", "search conversations"),
    ("Ctrl+L", "write a message"),
    ("Ctrl+B", "show or hide the conversations"),
    ("Ctrl+E", "show or hide the experts"),
    ("Ctrl+M", "enlarge the map"),
    ("Ctrl+,", "settings"),
    ("F2", "rename the marked conversation"),
    ("Delete", "delete the marked conversation"),
    ("F1", "this list"),
)

# -- settings --------------------------------------------------------------------------------------
GROUPS = {"look": "Appearance", "answers": "Answers", "engine": "Engine"}
ENGINE_GROUP_NOTE = "Used from the next start of the engine."
FILES_NOTE = "Settings and conversations are kept in"
CHOICES = {
    "system": "Like the system",
    "light": "Light",
    "dark": "Dark",
    "auto": "Automatic",
    "cpu": "Processor",
    "cuda": "NVIDIA graphics card",
}
SETTINGS = {
    "theme": ("Theme", "Light, dark, or whatever the system uses."),
    "text_size": ("Text size", "Height of the text in pixels."),
    "temperature": ("Temperature", "0 always takes the likeliest token; higher is more varied."),
    "top_p": ("Top p", "Sample from the likeliest tokens that together have this probability."),
    "max_tokens": ("Longest answer", "Tokens after which an answer stops."),
    "seed": ("Seed", "The same seed gives the same answer; -1 draws a new one each time."),
    "device": ("Device", "Where the model runs."),
    "context": ("Context", "Tokens of a conversation; 0 takes what the model was made for."),
    "threads": ("Threads", "Compute threads; 0 takes one per core."),
}
AUTOMATIC = "automatic"
RANDOM = "random"
