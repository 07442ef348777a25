"""The view of one table: its filter, its order and its columns.

It is separate from the widget, which shows rows. This works on jobs and nodes before they become rows, with
the filter words of the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Generic, TypeVar

from coach.analysis.query.language import Field, Order, Vocabulary
from coach.model.errors import UserError
from coach.tui.render.table import Column
from coach.workflows.watching.table_views import View

T = TypeVar("T")


class TableView(Generic[T]):
    """The last valid filter, order and columns. Invalid input changes nothing."""

    def __init__(self, vocabulary: Callable[[], Vocabulary[T]], columns: Sequence[Column]) -> None:
        """`vocabulary` is called each time, because some words depend on the time."""
        self._vocabulary = vocabulary
        self._columns = columns
        self.view = View()

    def restore(self, view: View) -> str | None:
        """Restore a saved view. Returns a part of it that is no longer valid, or None."""
        problems = [self.filter(view.filter), self.choose_columns(view.columns)]
        try:
            self._vocabulary().orders(view.sort)
            self.view = replace(self.view, sort=view.sort)
        except UserError as problem:
            problems.append(problem.message)
        return next(filter(None, problems), None)

    def filter(self, text: str) -> str | None:
        """Set the filter. Returns the error in it, or None."""
        try:
            self._vocabulary().query(text)
        except UserError as problem:
            return problem.message
        self.view = replace(self.view, filter=text.strip())
        return None

    def choose_columns(self, text: str) -> str | None:
        """Show only these columns, in this order: `id,user,gpu`; empty text: the default ones. Returns the
        error in it, or None."""
        names: list[str] = []
        for said in text.replace(",", " ").split():
            name = self._column(said)
            if name is None:
                known = self.choices()
                close = get_close_matches(said.lower(), known, 1, 0.6)
                meant = f"did you mean {close[0]}?" if close else f"there are: {' '.join(known)}"
                return f'columns: no column "{said}"; {meant}'
            names.append(name)
        self.view = replace(self.view, columns=",".join(dict.fromkeys(names)))
        return None

    def choices(self) -> list[str]:
        """The names of the columns that can be chosen."""
        return [column.name for column in self._columns if column.title]

    def sort_by_next(self, shown: Sequence[str]) -> None:
        """Sort by the next of the shown columns; after the last, return to the default order."""
        names = [field.name for name in shown if (field := self._field(name)) is not None]
        at = names.index(self._sorted_by) + 1 if self._sorted_by in names else 0
        self.view = replace(self.view, sort=names[at] if at < len(names) else "")

    def sort_words(self, shown: Sequence[str]) -> str:
        """The column that sorts the rows, and the shown columns that no sort can use."""
        titles = {column.name: column.title for column in self._columns if column.title}
        without = [titles[name] for name in shown if name in titles and self._field(name) is None]
        by = self.sorted_column
        told = f"sorted by {titles[by[0]]}" if by is not None else "in the original order"
        return f"{told}; not sortable: {', '.join(without)}" if without else told

    def _field(self, column: str) -> Field[T] | None:
        """The field of a column; the one for narrow lists has the field of the wide one."""
        return self._vocabulary().field(column.removeprefix("short_"))

    def reverse(self) -> None:
        if self.view.sort:
            name = self._sorted_by
            self.view = replace(self.view, sort=name if self.view.sort.startswith("-") else f"-{name}")

    @property
    def _sorted_by(self) -> str:
        return self.view.sort.lstrip("-")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of signs, which have no title, then the chosen ones; empty if none were chosen."""
        chosen = tuple(filter(None, self.view.columns.split(",")))
        return (*(column.name for column in self._columns if not column.title), *chosen) if chosen else ()

    @property
    def orders(self) -> tuple[Order[T], ...]:
        return self._vocabulary().orders(self.view.sort)

    @property
    def sorted_column(self) -> tuple[str, bool] | None:
        """The column that sorts the rows, and True if the largest come first."""
        field = self._vocabulary().field(self._sorted_by) if self.view.sort else None
        if field is None:
            return None
        column = self._column(field.name)
        return (column, self.view.sort.startswith("-")) if column is not None else None

    def matching(self, rows: Iterable[T]) -> Sequence[T]:
        if not self.view.filter:
            return rows if isinstance(rows, Sequence) else list(rows)
        return self._vocabulary().query(self.view.filter).matching(rows)

    def _column(self, said: str) -> str | None:
        """The column of this name, or of the field with this name."""
        vocabulary = self._vocabulary()
        field = vocabulary.field(said)
        for column in self._columns:
            if column.title and (column.name == said or (field and vocabulary.field(column.name) is field)):
                return column.name
        return None
