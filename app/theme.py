"""Colours, type and the style sheet. Every pair of TEXT_PAIRS has a contrast of at least 4.5."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtGui import QColor, QFont, QPalette

from app.core.paths import icon_file

SANS = ["Inter", "Segoe UI Variable Text", "Segoe UI", "Cantarell", "Noto Sans", "DejaVu Sans"]
# No families that draw "->" as one arrow: code is shown as it is written.
MONO = ["Cascadia Mono", "SF Mono", "Consolas", "Noto Sans Mono", "DejaVu Sans Mono"]

COLUMN = 760  # widest line of the chat, in pixels
GAP = 8  # the unit of all spacing
RADIUS = 8


@dataclass(frozen=True, slots=True)
class Syntax:
    """Colours of code."""

    keyword: str
    string: str
    number: str
    comment: str
    function: str
    type: str


@dataclass(frozen=True, slots=True)
class TierColors:
    """Colours of the map, one per tier; they differ in lightness as well as in hue."""

    frozen: str
    cold: str
    warm: str
    hot: str
    flash: str  # a cell that is in use right now
    well: str  # behind the cells
    label: str  # text on the well
    cursor: str

    def by_tier(self) -> tuple[str, str, str, str]:
        """In the order of protocol.Tier."""
        return (self.frozen, self.cold, self.warm, self.hot)


@dataclass(frozen=True, slots=True)
class Colors:
    """One theme."""

    dark: bool
    window: str
    sidebar: str
    surface: str  # cards, inputs
    bubble: str  # messages of the user
    border: str
    text: str
    muted: str
    accent: str  # filled controls
    on_accent: str
    accent_text: str  # links, emphasis
    hover: str
    selected: str
    focus: str
    error: str
    error_soft: str
    code: str
    code_head: str
    track: str  # empty part of sliders and meters
    syntax: Syntax
    tiers: TierColors


LIGHT = Colors(
    dark=False,
    window="#FCFBF9",
    sidebar="#F4F2EE",
    surface="#FFFFFF",
    bubble="#F1EEE8",
    border="#E3DED6",
    text="#211E1A",
    muted="#6A635A",
    accent="#C2410C",
    on_accent="#FFFFFF",
    accent_text="#B03A0A",
    hover="#EBE7E0",
    selected="#E6E0D7",
    focus="#C2410C",
    error="#A4161A",
    error_soft="#FCEBEA",
    code="#F7F5F1",
    code_head="#EFECE6",
    track="#DDD7CD",
    syntax=Syntax("#8B2FA8", "#2F6B2A", "#9A4A00", "#6E675E", "#1F5FA8", "#8A5A00"),
    tiers=TierColors(
        "#2B2A2C", "#34618F", "#F08838", "#FFE08F", "#FFFFFF", "#161514", "#A79F94", "#FFFFFF"
    ),
)

DARK = Colors(
    dark=True,
    window="#1A1917",
    sidebar="#141312",
    surface="#232120",
    bubble="#2A2826",
    border="#37342F",
    text="#ECE8E1",
    muted="#A79F94",
    accent="#F2762E",
    on_accent="#1C0D04",
    accent_text="#FF9A5C",
    hover="#2C2A27",
    selected="#34312D",
    focus="#F2762E",
    error="#FF8A80",
    error_soft="#3A1F1D",
    code="#141312",
    code_head="#211F1D",
    track="#3D3A35",
    syntax=Syntax("#D7A1F0", "#9CCB86", "#F0A868", "#9A9186", "#82B8F2", "#E3C078"),
    tiers=TierColors(
        "#2B2A2C", "#34618F", "#F08838", "#FFE08F", "#FFFFFF", "#121110", "#A79F94", "#FFFFFF"
    ),
)

# Every text colour with every ground that it is painted on.
TEXT_PAIRS = (
    ("text", "window"),
    ("text", "sidebar"),
    ("text", "surface"),
    ("text", "bubble"),
    ("text", "hover"),
    ("text", "selected"),
    ("text", "error_soft"),
    ("text", "code"),
    ("muted", "window"),
    ("muted", "sidebar"),
    ("muted", "surface"),
    ("muted", "code_head"),
    ("muted", "hover"),
    ("muted", "selected"),
    ("on_accent", "accent"),
    ("accent_text", "window"),
    ("accent_text", "surface"),
    ("accent_text", "sidebar"),
    ("error", "window"),
    ("error", "surface"),
    ("error", "error_soft"),
    ("error", "sidebar"),
)


def font(size: int) -> QFont:
    """The text font of the window."""
    result = QFont()
    result.setFamilies(SANS)
    result.setPixelSize(size)
    return result


def mono(size: int) -> QFont:
    """The font of code, set a little smaller because its letters are wide."""
    result = QFont()
    result.setFamilies(MONO)
    result.setStyleHint(QFont.StyleHint.Monospace)
    result.setPixelSize(round(size * 0.93))
    return result


def palette(c: Colors) -> QPalette:
    """For what the style draws by itself: selections, placeholders, tool tips, disabled text."""
    result = QPalette()
    role = QPalette.ColorRole
    for key, value in (
        (role.Window, c.window),
        (role.WindowText, c.text),
        (role.Base, c.surface),
        (role.AlternateBase, c.sidebar),
        (role.Text, c.text),
        (role.Button, c.surface),
        (role.ButtonText, c.text),
        (role.ToolTipBase, c.surface),
        (role.ToolTipText, c.text),
        (role.Highlight, c.accent),
        (role.HighlightedText, c.on_accent),
        (role.Link, c.accent_text),
        (role.PlaceholderText, c.muted),
        (role.Mid, c.border),
        (role.Dark, c.border),
        (role.Accent, c.accent),
        (role.LinkVisited, c.accent_text),
    ):
        result.setColor(key, QColor(value))
    for key in (role.WindowText, role.Text, role.ButtonText):
        result.setColor(QPalette.ColorGroup.Disabled, key, QColor(c.muted))
    return result


def prose_css(c: Colors, size: int) -> str:
    """The style of markdown blocks."""
    family = ", ".join(f"'{name}'" for name in MONO)
    return f"""
    p, li {{ line-height: 145%; margin: 0; }}
    ul, ol {{ margin: 0; }}
    h1 {{ font-size: {size + 6}px; font-weight: 600; margin: 6px 0 0 0; }}
    h2 {{ font-size: {size + 4}px; font-weight: 600; margin: 6px 0 0 0; }}
    h3, h4, h5, h6 {{ font-size: {size + 1}px; font-weight: 600; margin: 4px 0 0 0; }}
    a {{ color: {c.accent_text}; }}
    code {{ font-family: {family}; font-size: {round(size * 0.93)}px;
            background-color: {c.code_head}; }}
    table {{ border-collapse: collapse; }}
    th, td {{ border-bottom-width: 1px; border-bottom-style: solid;
              border-bottom-color: {c.border}; padding: 5px 12px; }}
    th {{ font-weight: 600; }}
    hr {{ background-color: {c.border}; }}
    blockquote {{ color: {c.muted}; margin: 0 0 0 16px; }}
    """


def sheet(c: Colors, size: int) -> str:
    """The style sheet of the application."""
    small = size - 2
    return f"""
    * {{ font-size: {size}px; }}
    QMainWindow, QDialog, #chat, #empty, #transcript, #column {{ background: {c.window}; }}
    QWidget {{ color: {c.text}; }}
    QToolTip {{ background: {c.surface}; color: {c.text}; border: 1px solid {c.border};
               padding: 4px 6px; }}
    #sidebar, #panel {{ background: {c.sidebar}; }}
    #header {{ background: {c.window}; border-bottom: 1px solid {c.border}; }}
    #status {{ background: {c.sidebar}; border-top: 1px solid {c.border}; }}
    #status QLabel {{ font-size: {small}px; color: {c.muted}; }}
    #brand {{ font-size: {size + 2}px; font-weight: 600; }}
    #title {{ font-size: {size + 10}px; font-weight: 600; }}
    #heading {{ font-weight: 600; }}
    #figure {{ font-size: {size + 6}px; font-weight: 600; }}
    #muted, #hint {{ color: {c.muted}; }}
    #small {{ color: {c.muted}; font-size: {small}px; }}
    #approximate {{ color: {c.accent_text}; font-size: {small}px; padding-right: 6px; }}
    #error {{ color: {c.error}; font-size: {small}px; }}
    #card {{ background: {c.surface}; border: 1px solid {c.border}; border-radius: {RADIUS}px; }}
    #bubble {{ background: {c.bubble}; border-radius: 12px; }}
    #codeblock {{ background: {c.code}; border: 1px solid {c.border};
                 border-radius: {RADIUS}px; }}
    #codehead {{ background: {c.code_head}; border-top-left-radius: 7px;
                border-top-right-radius: 7px; border-bottom: 1px solid {c.border}; }}
    #codehead QLabel {{ color: {c.muted}; font-size: {small}px; }}
    #codebody {{ background: transparent; border: none; padding: 6px 10px;
                selection-background-color: {c.accent}; }}
    #codebody:focus {{ border: 1px solid {c.focus}; border-radius: 4px; }}
    #thoughts {{ color: {c.muted}; border: 0 solid {c.track}; border-left-width: 2px;
                margin-left: 12px; padding-left: 12px; }}
    #rule {{ background: {c.border}; max-height: 1px; min-height: 1px; }}
    #banner {{ background: {c.error_soft}; border-bottom: 1px solid {c.border}; }}
    #composer {{ background: {c.surface}; border: 1px solid {c.border}; border-radius: 14px; }}
    #composer[active="true"] {{ border: 1px solid {c.focus}; }}
    #input {{ background: transparent; border: none; }}
    #droptarget {{ background: {c.window}; border: 2px dashed {c.accent};
                  color: {c.accent_text}; font-size: {size + 6}px; }}
    {_buttons(c, small)}
    {_inputs(c)}
    {_lists(c, small)}
    {_bars(c)}
    """


def _buttons(c: Colors, small: int) -> str:
    return f"""
    QPushButton {{ background: {c.surface}; border: 1px solid {c.border}; border-radius: 7px;
                  padding: 6px 14px; }}
    QPushButton:hover {{ background: {c.hover}; }}
    QPushButton:pressed {{ background: {c.selected}; }}
    QPushButton:focus {{ border: 1px solid {c.focus}; }}
    QPushButton:disabled {{ color: {c.muted}; }}
    QPushButton:default, #primary {{ background: {c.accent}; color: {c.on_accent};
                                    border: 1px solid {c.accent}; font-weight: 600; }}
    QPushButton:default:focus, #primary:focus {{ border: 1px solid {c.text}; }}
    #newchat {{ text-align: left; padding: 7px 10px; }}
    #model {{ background: transparent; border: 1px solid transparent; font-weight: 600;
             padding: 5px 8px; }}
    #model:hover {{ background: {c.hover}; }}
    #model:focus {{ border: 1px solid {c.focus}; }}
    #model::menu-indicator {{ image: none; width: 0; }}
    #example {{ text-align: left; padding: 12px 14px; border-radius: 10px; }}
    QToolButton {{ background: transparent; border: 1px solid transparent; border-radius: 6px;
                  padding: 4px; }}
    QToolButton:hover {{ background: {c.hover}; }}
    QToolButton:pressed, QToolButton:checked {{ background: {c.selected}; }}
    QToolButton:focus {{ border: 1px solid {c.focus}; }}
    #sendbutton {{ background: {c.accent}; border-radius: 10px; padding: 6px; }}
    #sendbutton:focus {{ border: 1px solid {c.text}; }}
    #sendbutton:disabled {{ background: {c.track}; }}
    #toend {{ background: {c.surface}; border: 1px solid {c.border}; border-radius: 14px; }}
    #toend:hover {{ background: {c.hover}; }}
    #quiet {{ color: {c.muted}; font-size: {small}px; }}
    #quiet:checked {{ background: transparent; }}
    """


def _inputs(c: Colors) -> str:
    # A style sheet takes a picture from a file only, so its colour is in the file.
    arrow = icon_file("arrow-dark" if c.dark else "arrow-light").as_posix()
    return f"""
    QLineEdit, QSpinBox, QDoubleSpinBox, QComboBox {{ background: {c.surface};
        border: 1px solid {c.border}; border-radius: 7px; padding: 5px 8px; min-height: 20px;
        selection-background-color: {c.accent}; selection-color: {c.on_accent}; }}
    QLineEdit:focus, QSpinBox:focus, QDoubleSpinBox:focus, QComboBox:focus {{
        border: 1px solid {c.focus}; }}
    QComboBox::drop-down {{ border: none; width: 24px; }}
    QComboBox::down-arrow {{ image: url("{arrow}"); width: 16px; height: 16px; }}
    QComboBox QAbstractItemView {{ background: {c.surface}; border: 1px solid {c.border};
        selection-background-color: {c.hover}; selection-color: {c.text}; padding: 4px; }}
    QAbstractSpinBox::up-button, QAbstractSpinBox::down-button {{ width: 0; border: none; }}
    QAbstractSpinBox QLineEdit {{ background: transparent; border: none; padding: 0 7px;
        min-height: 0; }}
    QLineEdit, QPlainTextEdit {{ placeholder-text-color: {c.muted}; }}
    QPlainTextEdit {{ background: {c.surface}; border: 1px solid {c.border};
        border-radius: {RADIUS}px; selection-background-color: {c.accent};
        selection-color: {c.on_accent}; }}
    QPlainTextEdit:focus {{ border: 1px solid {c.focus}; }}
    QMenu {{ background: {c.surface}; border: 1px solid {c.border}; padding: 5px; }}
    QMenu::item {{ padding: 6px 22px 6px 12px; border-radius: 5px; }}
    QMenu::item:selected {{ background: {c.hover}; color: {c.text}; }}
    QMenu::item:disabled {{ color: {c.muted}; }}
    QMenu::separator {{ height: 1px; background: {c.border}; margin: 5px 6px; }}
    """


def _lists(c: Colors, small: int) -> str:
    return f"""
    QListView {{ background: transparent; border: none; outline: none; }}
    QTableView {{ background: {c.surface}; border: 1px solid {c.border}; border-radius: 6px;
                 gridline-color: {c.border}; font-size: {small}px;
                 selection-background-color: {c.selected}; selection-color: {c.text}; }}
    QTableView:focus {{ border: 1px solid {c.focus}; }}
    QHeaderView::section {{ background: {c.sidebar}; color: {c.muted}; border: none;
                           border-bottom: 1px solid {c.border}; padding: 4px 6px;
                           font-size: {small}px; }}
    QScrollArea {{ background: {c.window}; border: none; }}
    QScrollArea:focus {{ border: none; }}
    QSplitter::handle {{ background: {c.border}; }}
    QSplitter::handle:hover {{ background: {c.accent}; }}
    """


def _bars(c: Colors) -> str:
    return f"""
    QProgressBar {{ background: {c.track}; border: none; border-radius: 2px; max-height: 4px;
                   min-height: 4px; }}
    QProgressBar::chunk {{ background: {c.accent}; border-radius: 2px; }}
    QScrollBar:vertical {{ background: transparent; width: 10px; margin: 0; }}
    QScrollBar:horizontal {{ background: transparent; height: 10px; margin: 0; }}
    QScrollBar::handle {{ background: {c.track}; border-radius: 4px; margin: 1px;
                         min-height: 28px; min-width: 28px; }}
    QScrollBar::handle:hover {{ background: {c.muted}; }}
    QScrollBar::add-line, QScrollBar::sub-line {{ width: 0; height: 0; }}
    QScrollBar::add-page, QScrollBar::sub-page {{ background: transparent; }}
    """
