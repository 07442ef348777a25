from __future__ import annotations

from coach.sources.slurm.node_sets import expand_nodes, fold_nodes


def test_slurm_s_spellings_of_node_sets_are_expanded() -> None:
    assert set(expand_nodes("node[1-3,7],gpu[008-010]")) == {
        *("node1", "node2", "node3", "node7", "gpu008", "gpu009", "gpu010"),
    }
    assert len(expand_nodes("r[1-2]n[08-10]")) == 6
    assert expand_nodes(None) == expand_nodes("(null)") == expand_nodes("node[1-") == ()


def test_the_name_of_a_node_group_is_not_expanded() -> None:
    assert expand_nodes("@all") == ()
    assert fold_nodes(["node2", "node1", "@all"]) == "node[1-2],@all"


def test_a_long_list_of_names_with_two_numbers_expands_like_its_items() -> None:
    items = [f"rack{number}n[{number % 3}-{number % 3 + 1}]" for number in range(600)]
    whole = expand_nodes(",".join([*items, "login", "gpu[1-2]"]))
    assert len(whole) == len(set(whole)) == 1203
    assert set(whole) == {name for item in (*items, "login", "gpu[1-2]") for name in expand_nodes(item)}
    assert expand_nodes(",".join([*items, "gpu[1"])) == ()
