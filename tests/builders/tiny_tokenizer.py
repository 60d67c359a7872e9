"""A byte-level BPE vocabulary of any size from 264 tokens on, with a chat template.

Every text can be written with it (all 256 bytes are tokens), and common English words merge.
"""

from __future__ import annotations

from dataclasses import dataclass

import gguf
from gguf import TokenType

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LEAST_VOCABULARY = 256 + len(SPECIALS) + 5  # a vocabulary without merges is no BPE

_WORDS = (
    " the and of to in is that for it as was with be by on not he his but at are this have from "
    "or had an they which one you were all her she there would their we him been has when who "
    "will no more if out so what up said about other into than its time only could new them man "
    "some these then two first may do any like my now over such our even most me state after also "
    "made many did must before back see through way where get much go well your know should down "
    "work year because come people just say each those take day good how long little own too does"
)


def byte_letters() -> list[str]:
    """The printable letter that stands for each byte in a byte-level vocabulary (GPT-2's map).

    Printable Latin-1 stands for itself; the 68 others take the letters from U+0100 on, in order.
    """
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte) if byte in shown else chr(next(spare)) for byte in range(256)]


@dataclass(frozen=True, slots=True)
class TinyVocabulary:
    tokens: list[str]
    kinds: list[int]
    merges: list[str]

    @property
    def eos_id(self) -> int:
        return self.tokens.index("<|im_end|>")

    @property
    def pad_id(self) -> int:
        return self.tokens.index("<|endoftext|>")


def tiny_vocabulary(size: int) -> TinyVocabulary:
    """Bytes, then as many merges of common words as fit, the special tokens, then padding."""
    if size < LEAST_VOCABULARY:
        raise ValueError(f"a vocabulary needs at least {LEAST_VOCABULARY} tokens, got {size}")
    letters = byte_letters()
    tokens, merges = list(letters), list[str]()
    seen = set(tokens)
    room = size - len(letters) - len(SPECIALS)
    for word in _WORDS.split(" "):
        left = letters[ord(" ")]  # words merge from the left: "Ġ t", "Ġt h", "Ġth e"
        for letter in word:
            if left + letter not in seen and len(merges) < room:
                merges.append(f"{left} {letter}")
                tokens.append(left + letter)
                seen.add(left + letter)
            if left + letter not in seen:
                break
            left += letter
    kinds = [int(TokenType.NORMAL)] * len(tokens)
    tokens += SPECIALS
    kinds += [int(TokenType.CONTROL)] * len(SPECIALS)
    while len(tokens) < size:
        tokens.append(f"[PAD{len(tokens)}]")
        kinds.append(int(TokenType.UNUSED))
    return TinyVocabulary(tokens, kinds, merges)


def add_tokenizer(writer: gguf.GGUFWriter, vocabulary: TinyVocabulary) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.kinds)
    if vocabulary.merges:
        writer.add_token_merges(vocabulary.merges)
    writer.add_eos_token_id(vocabulary.eos_id)
    writer.add_pad_token_id(vocabulary.pad_id)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
