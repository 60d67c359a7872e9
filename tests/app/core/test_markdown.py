"""Blocks: what they hold, where they end, and that nothing dangerous gets through."""

from __future__ import annotations

import pytest

from app.core import markdown

TEXT = """# Title

A paragraph with **bold**,
two lines.

- one
- two

```python
print("hi")

print("there")
```

| a | b |
|---|--:|
| 1 | 2 |

    indented code

> quote
"""


def test_kinds_and_ends() -> None:
    blocks = markdown.split(TEXT)
    assert [b.code for b in blocks] == [False, False, False, True, False, True, False]
    assert blocks[3].language == "python"
    assert blocks[3].content == 'print("hi")\n\nprint("there")'
    assert blocks[5].content == "indented code"
    ends = [b.end for b in blocks]
    assert ends == sorted(ends)
    assert TEXT[: ends[0]] == "# Title\n"
    assert TEXT[ends[2] :].lstrip().startswith("```python")


def test_finished_blocks_do_not_depend_on_what_follows() -> None:
    """The stream renders piece by piece: all blocks but the last must already be final."""
    final = markdown.split(TEXT)
    settled, done = 0, []
    for length in range(1, len(TEXT) + 1):
        blocks = markdown.split(TEXT[settled:length])
        for block in blocks[:-1]:
            done.append((block.code, block.content))
        if len(blocks) > 1:
            settled += blocks[-2].end
    done += [(b.code, b.content) for b in markdown.split(TEXT[settled:])]
    assert done == [(b.code, b.content) for b in final]


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "a <b>bold</b> b",
        "![](https://example.org/spy.png)",
        "![alt](file:///etc/passwd)",
    ],
)
def test_html_is_escaped_and_images_are_not_fetched(text: str) -> None:
    shown = "".join(block.content for block in markdown.split(text))
    assert "<script" not in shown
    assert "<img" not in shown
    assert "<b>" not in shown


def test_line_breaks_stay() -> None:
    assert "<br" in markdown.split("roses\nviolets")[0].content


def test_odd_line_ends_do_not_shift_the_blocks() -> None:
    text = "one\u2028still one\x0cand\n\ntwo\n"
    blocks = markdown.split(text)
    assert len(blocks) == 2
    assert blocks[-1].end == len(text)


def test_open_fence_takes_everything() -> None:
    blocks = markdown.split("```rust\nfn main() {\n\n# not a title")
    assert [(b.code, b.language) for b in blocks] == [(True, "rust")]


def test_long_words_can_break_but_addresses_stay_whole() -> None:
    address = "https://example.org/" + "a" * 100
    content = markdown.split(f"[x]({address}) {'b' * 100} &amp; <{address}>")[0].content
    assert content.count(f'href="{address}"') == 2
    assert "b" * 24 + "\u200b" + "b" * 24 in content
    assert markdown.breakable("short words stay") == "short words stay"
    assert markdown.breakable("x" * 100).replace("\u200b", "") == "x" * 100


def test_empty() -> None:
    assert markdown.split("") == []
    assert markdown.split("\n \n") == []
