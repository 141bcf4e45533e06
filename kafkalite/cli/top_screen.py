"""The screen of `kafkalite top`: one table that is refreshed, in the manner of htop. Needs textual.

A thread takes the samples, so that keys work meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Input, Static

from kafkalite.cli.top_samples import BROKERS, COLUMNS, GROUPS, TOPICS, Sample, cell, in_order, title
from kafkalite.common.errors import ConfigError, Unanswered
from kafkalite.common.text import printable

ROWS_MAX = 500
"""More are not drawn; sorting and the filter bring others up."""

_SORTED_BY = {TOPICS: "bytes_per_s", GROUPS: "lag", BROKERS: "broker"}
_NAME_CHARS_MIN = 16
_BUSY_SHARE_MAX = 5  # of the time: a sample that takes long is repeated less often


class TopScreen(App[None]):
    """`take` makes a sample, in another thread; `where` names the cluster."""

    CSS = """
    #status { height: 1; background: $primary; color: $text; padding: 0 1; }
    #words { display: none; height: 3; }
    #words.shown { display: block; }
    DataTable { height: 1fr; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "view('topics')", "Topics"),
        Binding("g", "view('groups')", "Groups"),
        Binding("b", "view('brokers')", "Brokers"),
        Binding("s", "sort", "Sort"),
        Binding("r", "reverse", "Reverse"),
        Binding("slash", "filter", "Filter"),
        Binding("escape", "no_filter", "All", show=False),
        Binding("p", "pause", "Pause"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, take: Callable[[], Sample], where: str, interval_s: float, view: str = TOPICS) -> None:
        super().__init__()
        self._take = take
        self._where = where
        self._interval_s = interval_s
        self._view = view
        self._sorted_by = dict(_SORTED_BY)
        self._ascending = {TOPICS: False, GROUPS: False, BROKERS: True}
        self._words = ""
        self._sample: Sample | None = None
        self._fault = ""
        self._is_paused = False
        self._is_over = threading.Event()
        self._columns: tuple[str, ...] = ()

    def compose(self) -> ComposeResult:
        yield Static(id="status", markup=False)
        yield Input(id="words", placeholder="part of a name")
        yield DataTable(id="rows", cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(DataTable).focus()
        self._draw()
        threading.Thread(target=self._take_sample, name="kafkalite-top", daemon=True).start()

    def on_unmount(self) -> None:
        self._is_over.set()

    def _take_sample(self) -> None:
        """Take one sample, in a thread of its own."""
        while not self._is_over.is_set():
            sample, fault = (None, "") if self._is_paused else self._taken()
            if (sample is not None or fault) and not self._is_over.is_set():
                self.call_from_thread(self._show, sample, fault)
            self._is_over.wait(max(self._interval_s, sample.took_s * _BUSY_SHARE_MAX if sample is not None else 0))

    def _taken(self) -> tuple[Sample | None, str]:
        """A sample, or why there is none."""
        try:
            return self._take(), ""
        except (Unanswered, ConfigError, OSError) as fault:
            return None, str(fault)

    def _show(self, sample: Sample | None, fault: str) -> None:
        self._sample, self._fault = sample or self._sample, fault
        self._draw()

    # --- keys

    def action_view(self, view: str) -> None:
        self._view = view
        self._draw()

    def action_sort(self) -> None:
        columns = COLUMNS[self._view]
        at = columns.index(self._sorted_by[self._view]) + 1
        self._sorted_by[self._view] = columns[at % len(columns)]
        self._draw()

    def action_reverse(self) -> None:
        self._ascending[self._view] = not self._ascending[self._view]
        self._draw()

    def action_pause(self) -> None:
        self._is_paused = not self._is_paused
        self._draw()

    def action_filter(self) -> None:
        words = self.query_one(Input)
        words.add_class("shown")
        words.focus()

    def action_no_filter(self) -> None:
        self.query_one(Input).value = ""
        self._leave_input()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._words = event.value
        self._draw()

    def on_input_submitted(self) -> None:
        self._leave_input()

    def _leave_input(self) -> None:
        words = self.query_one(Input)
        words.set_class(bool(self._words), "shown")
        self.query_one(DataTable).focus()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)  # the size is the old one yet

    # --- the table

    def _draw(self) -> None:
        columns, by = COLUMNS[self._view], self._sorted_by[self._view]
        every = [] if self._sample is None else self._sample.rows[self._view]
        rows = in_order(every, by, ascending=self._ascending[self._view], words=self._words)
        self.query_one("#status", Static).update(self._status(len(rows), len(every)))
        table = self.query_one(DataTable)
        arrow = "\u2191" if self._ascending[self._view] else "\u2193"
        titles = tuple(title(name) + (f" {arrow}" if name == by else "") for name in columns)
        place, x, y = table.cursor_row, table.scroll_x, table.scroll_y
        if titles != self._columns:
            table.clear(columns=True)
            table.add_columns(*titles)
            self._columns = titles
        else:
            table.clear()
        longest = max(_NAME_CHARS_MIN, self.size.width // 2 - 4)
        for row in rows[:ROWS_MAX]:
            table.add_row(*(_cell(name, row[name], longest) for name in columns))
        if table.row_count:
            table.move_cursor(row=min(place, table.row_count - 1), animate=False)
            table.scroll_to(x, y, animate=False)

    def _status(self, shown: int, total: int) -> str:
        if self._fault:
            return printable(f"{self._where}: {self._fault}")
        if self._sample is None:
            return f"{self._where}: waiting for brokers ..."
        count = f"{total:,}" if shown == total else f"{shown:,} of {total:,}"
        what = self._view.removesuffix("s") if total == 1 else self._view
        more = f", the first {ROWS_MAX}" if shown > ROWS_MAX else ""
        paused = "  (paused)" if self._is_paused else ""
        return f"{self._where}: {count} {what}{more}, sampled in {self._sample.took_s * 1000:,.0f} ms{paused}"


def _cell(column: str, value: object, longest: int) -> Text:
    """The text of a cell: numbers to the right, control characters escaped. A long name is cut in the middle, as names
    differ at their ends."""
    text = printable(cell(column, value))
    if isinstance(value, str) and len(text) > longest:
        text = f"{text[: (longest - 1) // 2]}\u2026{text[-(longest // 2) :]}"
    return Text(text, justify="left" if isinstance(value, str) else "right", no_wrap=True)
