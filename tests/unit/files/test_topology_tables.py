"""Options of `[[dimension]]` tables: what they build, and what is refused."""

from pathlib import Path

import msgspec
import pytest
from unit.files.test_topology_files import check_refused

from stepsim.files.load import read_topology
from stepsim.network.topology import Dimension, LinkClass, NestedTopology
from stepsim.network.topology.dimension import LINK_FIELDS
from stepsim.network.topology.wirings import DragonflyShape, Ports, TreeShape

RATES = 'bandwidth = "50 GB/s"\nlatency = "1 us"\n'
NODE = f'[[dimension]]\nname = "node"\nkind = "switch"\nsize = 4\n{RATES}'


def read(path: Path, options: str, before: str = "") -> Dimension:
    """The outermost dimension of a file with these options."""
    text = f'name = "t"\nsource = "t"\n{before}[[dimension]]\nname = "net"\n{RATES}{options}\n'
    path.write_text(text)
    topology = read_topology(path)
    assert isinstance(topology, NestedTopology)
    return topology.dimensions[-1]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "net.toml"


def test_torus_and_mesh_have_the_size_of_their_shape(file: Path) -> None:
    for kind in ("torus", "mesh"):
        dimension = read(file, f'kind = "{kind}"\nshape = [4, 3, 2]')
        assert (dimension.shape, dimension.size) == ((4, 3, 2), 24)


def test_an_automatic_torus_starts_with_its_shape(file: Path) -> None:
    read(file, 'kind = "torus"\nshape = [4, 4, 4]\nsize = "auto"')
    topology = read_topology(file)
    assert (topology.npus, topology.default_npus, topology.fit(1024).npus) == (64, 64, 1024)


@pytest.mark.parametrize(
    ("options", "tree"),
    [
        ("radix = 8", TreeShape(down=(4, 4), up=(4, 4), most=128)),
        ("size = 32\nleaf = 8", TreeShape(down=(8,), up=(8,))),
        ("size = 32\nleaf = 8\nspines = 3", TreeShape(down=(8,), up=(3,))),
        ("size = 32\nleaf = 8\noversubscription = 4.0", TreeShape(down=(8,), up=(2,))),
        ('size = 32\nleaf = 8\nup_bandwidth = "100 GB/s"', TreeShape(down=(8,), up=(4,))),
        ("size = 32\nleaf = 8\nnics = 2", TreeShape(down=(8,), up=(16,))),
        ("size = 32\nleaf = 8\nnpus_per_nic = 2", TreeShape(down=(8,), up=(4,))),
        ("size = 64\nleaf = 8\npod = 32", TreeShape(down=(8, 4), up=(8, 4))),
        ("size = 64\nleaf = 8\npod = 32\ncores = 2", TreeShape(down=(8, 4), up=(8, 2))),
    ],
)
def test_trees_are_given_by_radix_or_by_leaf(options: str, tree: TreeShape, file: Path) -> None:
    assert read(file, f'kind = "fat_tree"\n{options}').tree == tree


def test_a_tree_has_room_for_what_its_radix_says(file: Path) -> None:
    assert read(file, 'kind = "fat_tree"\nradix = 8').size == 128
    assert read(file, 'kind = "fat_tree"\nradix = 8', NODE).size == 32
    assert read(file, 'kind = "fat_tree"\nradix = 8\nrails = true', NODE).size == 128


def test_uplinks_are_a_class_of_their_own(file: Path) -> None:
    dimension = read(file, 'kind = "fat_tree"\nsize = 8\nleaf = 4\nup_bandwidth = "200 GB/s"')
    assert [(c.name, c.bandwidth) for c in dimension.link_classes] == [
        ("net", 50e9),
        ("net-up", 200e9),
    ]


def test_dragonflies_are_as_large_as_they_can_be(file: Path) -> None:
    options = 'kind = "dragonfly"\nrouters = 4\nnpus_per_router = 2\nglobal_links = 2\n'
    dimension = read(file, options + 'global_bandwidth = "25 GB/s"\nglobal_latency = "2 us"')
    assert dimension.dragonfly == DragonflyShape(routers=4, npus=2, global_links=2)
    assert dimension.size == 72
    assert [(c.name, c.bandwidth, c.latency_ps) for c in dimension.link_classes] == [
        ("net", 50e9, 1_000_000),
        ("net-local", 50e9, 1_000_000),
        ("net-global", 25e9, 2_000_000),
    ]
    assert read(file, options + "size = 16").size == 16


def test_nics_and_reduction(file: Path) -> None:
    dimension = read(file, 'kind = "switch"\nsize = 2\nnics = 2\nreduces = true')
    assert (dimension.ports, dimension.reduces) == (Ports(nics=2), True)
    shared = read(file, 'kind = "switch"\nsize = 2\nnpus_per_nic = 4', NODE)
    assert [link.name for link in shared.link_classes] == ["net", "net-host"]


def test_cables_say_how_many_positions_there_are(file: Path) -> None:
    dimension = read(file, 'kind = "cables"\ncables = [[0, 1], [1, 2], [0, 1]]')
    assert (dimension.size, dimension.cables) == (3, ((0, 1), (1, 2), (0, 1)))


def test_algorithms_are_those_of_the_library(file: Path) -> None:
    read(file, 'kind = "ring"\nsize = 4', '[collective]\nalgorithms = ["ring", "nvls"]\n')
    assert read_topology(file).algorithms == ("ring", "nvls")


TORUS = 'kind = "torus"\nshape = [4, 4]\n'
LEAF = 'kind = "fat_tree"\nsize = 16\nleaf = 8\n'
DRAGONFLY = 'kind = "dragonfly"\nrouters = 4\nnpus_per_router = 2\nglobal_links = 2\n'


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ('kind = "torus"\nsize = "auto"', "shape is None: expected the length of every side"),
        ('kind = "torus"\nshape = [4, 0]', "shape[1] is 0: expected a whole"),
        (TORUS + "size = 15", "size is 15: the shape is 4 x 4"),
        (TORUS + "leaf = 4", "leaf belongs to kind fat_tree, not to torus"),
        (TORUS + "nics = 2", "NICs need a kind with switches"),
        (TORUS + "reduces = true", "reduces and NICs need a kind with switches"),
        ('kind = "ring"\nsize = 4\nshape = [4]', "shape belongs to kind torus and mesh"),
        ('kind = "fat_tree"\nsize = 16\nradix = 4\nleaf = 2', "leaf, the NPUs below a leaf switch"),
        ('kind = "fat_tree"\nradix = 4\nspines = 2', "spines does not go with radix"),
        ('kind = "fat_tree"\nradix = 5', "radix is 5: expected an even"),
        ('kind = "fat_tree"\nradix = 4\nsize = 20', "size is 20: the tree has room for 16"),
        (LEAF + "spines = 2\noversubscription = 2.0", "exclude"),
        (
            LEAF + "oversubscription = 3.0",
            "oversubscription is 3: a leaf of 8 NPUs would need 2.66667 links",
        ),
        (LEAF + "oversubscription = 0.0", "oversubscription is 0.0: expected a number >= 1e-06"),
        (LEAF + "spines = 0", "spines is 0"),
        (LEAF + "cores = 2", "cores needs pod"),
        (LEAF + "pod = 12", "pod is 12: expected whole leaves of 8"),
        (LEAF + 'up_bandwidth = "9"', "up_bandwidth: '9' has no unit"),
        ('kind = "fat_tree"\nsize = 12\nleaf = 8', "size is 12: expected whole leaves of 8"),
        ('kind = "fat_tree"\nleaf = 8', "size is None: expected a positive integer"),
        ('kind = "dragonfly"\nrouters = 4', "npus_per_router is None"),
        (DRAGONFLY + "size = 12", "size is 12: expected whole groups of 8"),
        (DRAGONFLY + "size = 800", "size is 800: global links reach at most 72"),
        (DRAGONFLY + 'global_bandwidth = "-1 GB/s"', "global_bandwidth: '-1"),
        (DRAGONFLY + 'global_latency = "1"', "global_latency: '1' has no unit"),
        ('kind = "cables"', "cables is None: expected pairs"),
        ('kind = "cables"\ncables = [[0, 0]]', "dimension[1] (net): cables[0] joins 0 to itself"),
        ('kind = "cables"\ncables = [[0, 1]]\nsize = 3', "do not connect 0 and 2"),
        ('kind = "cables"\ncables = [[0, 1]]\nsize = "auto"', "size is 'auto'"),
        ('kind = "cables"\ncables = [[0, 1, 2]]', "cables"),
        ('kind = "cables"\ncables = [[0, 99]]', "size is 100: cables join 1 to 32"),
        ('kind = "rail"\nsize = 4\nnpus_per_nic = 2', "npus_per_nic"),
        ('kind = "switch"\nsize = 4\nnics = 0', "nics is 0"),
        ('kind = "switch"\nsize = 4\nnics = 2\nnpus_per_nic = 2', "exclude"),
    ],
)
def test_mistakes_are_named(options: str, said: str, file: Path) -> None:
    before = f"[[dimension]]\nname = 'in'\nkind = 'ring'\nsize = 1\n{RATES}"
    file.write_text(
        f'name = "t"\nsource = "t"\n{before}[[dimension]]\nname = "net"\n{RATES}{options}\n'
    )
    check_refused(file, "dimension[1]", said)


def test_unknown_algorithms_are_named(file: Path) -> None:
    file.write_text(f'name = "t"\nsource = "t"\n[collective]\nalgorithms = ["rings"]\n{NODE}')
    check_refused(file, "collective: algorithms is 'rings': expected of ring, bidirectional_ring")


def test_files_and_classes_have_the_fields_of_links() -> None:
    """The numbers of links are those of their class, by their keys in files, with its defaults."""
    link = {field.name: field for field in msgspec.structs.fields(LinkClass)}
    assert set(link) - {"name"} == {field.field for field in LINK_FIELDS}
    for field in LINK_FIELDS:
        found = link[field.field]
        assert found.encode_name == field.name
        expected = msgspec.NODEFAULT if field.default is None else field.default
        assert found.default == expected
