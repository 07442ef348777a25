from __future__ import annotations

from coach.sources.slurm.node_sets import expand_nodes, fold_nodes


def test_node_sets_are_expanded_in_slurm_s_spellings() -> None:
    assert set(expand_nodes("node[1-3,7],gpu[008-010]")) == {
        *("node1", "node2", "node3", "node7", "gpu008", "gpu009", "gpu010"),
    }
    assert len(expand_nodes("r[1-2]n[08-10]")) == 6
    assert expand_nodes(None) == expand_nodes("(null)") == expand_nodes("node[1-") == ()


def test_a_group_is_never_looked_up() -> None:
    assert expand_nodes("@all") == ()
    assert fold_nodes(["node2", "node1", "@all"]) == "node[1-2],@all"
