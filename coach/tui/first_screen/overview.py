"""The cluster at a glance: the free GPUs of each partition, and the nodes as strips by type of GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from coach.analysis.queueing.free_gpus import free_by_partition
from coach.analysis.queueing.node_strip import Strip, strips_of
from coach.model.slurm.cluster import Node, Partition
from coach.render.text import Line
from coach.tui.arrangement import Arranged
from coach.tui.context import Context
from coach.tui.render.cluster import FreeGpus, partition_lines
from coach.tui.render.node_strip import DrawnStrip, drawn_strips, strip_lines

_HIGH = 30
"""On a terminal with fewer lines, this takes only one or two lines."""


class Overview:
    """The overview. It is computed once for each new list of nodes."""

    def __init__(
        self,
        context: Context,
        deliver: Callable[[Callable[[], object]], object],
        redraw: Callable[[], object],
    ) -> None:
        self._context = context
        self._redraw = redraw
        self._made: Arranged[tuple[FreeGpus, tuple[Strip, ...]]] = Arranged(({}, ()), deliver)
        self._drawn: tuple[object, int, tuple[DrawnStrip, ...]] = (None, 0, ())
        """A cache: the strips, the width, and the drawn strips."""

    def lines(self, width: int, height: int) -> list[Line]:
        """The lines of the overview. `height` is the terminal's."""
        context, is_high = self._context, height >= _HIGH
        snapshot = context.snapshot
        make = partial(_look, snapshot.nodes, snapshot.partitions)
        nodes = snapshot.nodes
        free, strips = self._made.of(nodes, len(nodes), snapshot.partitions, make, self._redraw)
        if self._drawn[0] is not strips or self._drawn[1] != width:
            self._drawn = (strips, width, drawn_strips(strips, width))
        is_hidden = "partitions" in snapshot.hidden
        rows = partition_lines(snapshot.partitions, free, width, 4 if is_high else 2, is_hidden)
        most = 8 if is_high else max(1, 3 - len(rows))
        uses = context.trainings.uses_by_node(context.now_s)
        return [*rows, *strip_lines(self._drawn[2], uses, context.now_s, width, most)]


def _look(nodes: tuple[Node, ...], partitions: tuple[Partition, ...]) -> tuple[FreeGpus, tuple[Strip, ...]]:
    return free_by_partition(nodes, partitions), strips_of(nodes, partitions)
