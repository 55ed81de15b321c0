"""Launch scripts as a shell reads them: what they must give, in the forms of public ones.

Words and numbers are our own. A script gives the values of its arguments and its NPUs, or one line
that says what to give.
"""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers import Run
from hypothesis import given, strategies as st

from stepsim.base.errors import WorkloadError
from stepsim.files.asked import read_inputs
from stepsim.files.load import read_model
from stepsim.files.models.scripts import script_arguments
from stepsim.files.shell import read_script
from stepsim.files.shell.words import unknown_in
from stepsim.workload.model.architecture import GroupedAttention

BASE = (
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 "
    "--max-position-embeddings 4096 --vocab-size 32000 --micro-batch-size 1 --global-batch-size 64 "
    "--bf16"
)

CASES: dict[str, tuple[str, int]] = {
    "arrays": (
        """
GPUS_PER_NODE=8; NNODES=${SLURM_NNODES:-"2"}
DISTRIBUTED_ARGS=( --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --master_port 6000 )
MODEL_ARGS=( --num-layers 40 --hidden-size 5120 )
MODEL_ARGS+=( --micro-batch-size 2 )
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${MODEL_ARGS[@]} "${OTHER_ARGS[@]}"
""",
        16,
    ),
    "strings of arguments": (
        """
GPT_ARGS="
    --num-layers 24 \\
    --hidden-size 2048
    --micro-batch-size 4
"
OPT="--tensor-model-parallel-size 2"
torchrun --nproc_per_node=4 --nnodes=1 pretrain_gpt.py $GPT_ARGS ${OPT}
""",
        4,
    ),
    "branches that are decided": (
        """
PR=${PR:-bf16}
if [ $PR = fp16 ]; then
    pr_options="--fp16"
elif [ $PR = bf16 ]; then
    pr_options="--bf16"
elif [ $PR = fp8 ]; then
    pr_options="--bf16 --fp8-format hybrid"
fi
if [ -z "$MP_VP" ]; then vp=""; else vp="--num-layers-per-virtual-pipeline-stage ${MP_VP}"; fi
AC=full
if [[ $AC == sel* ]]; then act=""; else act="--recompute-granularity full"; fi
run="torchrun --nproc_per_node 8 x.py --num-layers 8 ${pr_options} ${vp} ${act}"
echo ${run}
eval ${run}
""",
        8,
    ),
    "case": (
        """
MODEL=${1:-7b}
case "$MODEL" in
  7b|7B) LAYERS=32; HIDDEN=4096 ;;
  13b) LAYERS=40; HIDDEN=5120 ;;
  *) echo unknown; exit 1 ;;
esac
python -m torch.distributed.launch --nproc_per_node 8 x.py \\
  --num-layers $LAYERS --hidden-size $HIDDEN
""",
        8,
    ),
    "arithmetic": (
        """
TP=2 PP=4
WORLD_SIZE=$((8*4))
DP=$((WORLD_SIZE/TP/PP)); GBS=$(( DP * 16 ))
FFN=$(( (8 * 4096 / 3 + 255) / 256 * 256 ))
torchrun --nproc_per_node 8 --nnodes 4 x.py --num-layers 4 --global-batch-size $GBS \\
  --ffn-hidden-size ${FFN} --pipeline-model-parallel-size ${PP}
""",
        32,
    ),
    "mpirun": (
        "NP=24\nmpirun -np $NP python x.py --num-layers 6 --hidden-size 1024",
        24,
    ),
    "deepspeed": (
        """
deepspeed --num_nodes ${NODES:-2} --num_gpus 8 pretrain_gpt.py --num-layers 10 --zero-stage 1
""",
        16,
    ),
    "functions": (
        """
size() { LAYERS=$1; HIDDEN=$2; }
train() { torchrun --nproc_per_node 2 x.py --num-layers $LAYERS --hidden-size $HIDDEN "$@"; }
size 6 768
train --swiglu
""",
        2,
    ),
    "loops": (
        """
ARGS=""
for a in "--num-layers 3" "--swiglu"; do ARGS="$ARGS $a"; done
while [[ $# -gt 0 ]]; do case $1 in --tp) TP=$2; shift 2;; esac; done
until [[ $# -eq 0 ]]; do ARGS=""; shift; done
torchrun --nproc_per_node 8 x.py $ARGS --tensor-model-parallel-size ${TP:-2}
""",
        8,
    ),
    "and, or": (
        """
FP8=1
[[ $FP8 -eq 1 ]] && P="--fp8-format hybrid" || P="--bf16"
[ "$FP8" -gt 1 ] && Q="--fp16"
test -n "$SAVE" || S="--num-layers 5"
torchrun --nproc_per_node 8 x.py $P $Q $S
""",
        8,
    ),
    "training behind a preparation": (
        """
RUN="mkdir -p $0.d && torchrun --nproc_per_node 4 x.py --num-layers 9"
eval $RUN
""",
        4,
    ),
    "parts of texts": (
        """
NAME=llama-13b.v2
SIZE=${NAME#llama-}; SIZE=${SIZE%%.*}
DIM=${SIZE/13b/40}
: ${HID:=5120}
read -r A B <<< "2 4"
torchrun --nproc_per_node 8 x.py --num-layers $DIM --hidden-size ${HID} --micro-batch-size $A
""",
        8,
    ),
    "quotes and equals": (
        """
X="a b"
torchrun --nproc-per-node="8" --nnodes="1" x.py --num-layers="7" --data-path "$X" \\
  --moe-layer-freq "([0]*3+[1]*4)"
""",
        8,
    ),
    "a world that the script sets": (
        "WORLD_SIZE=128\nsrun python x.py --num-layers 9",
        128,
    ),
    "nodes of a host list": (
        """
NODES=(n0 n1 n2)
NNODES=${#NODES[@]}
GPUS=4
WORLD=$((NNODES * GPUS))
LAUNCH="torchrun --nnodes $NNODES --nproc_per_node $GPUS"
ARGS=(--num-layers 6 --micro-batch-size 1)
ARGS+=(--global-batch-size $((WORLD * 8)))
$LAUNCH pretrain_gpt.py "${ARGS[@]}"
""",
        12,
    ),
    "a function with the arguments": (
        """
train() {
  local tp=$1 pp=${2:-1}
  torchrun --nproc_per_node 8 x.py --num-layers 10 --tensor-model-parallel-size $tp \\
    --pipeline-model-parallel-size $pp
}
train 4
""",
        8,
    ),
    "what nobody needs": (
        """
CHECKPOINT=$(ls -t $ROOT | head -1)
HOST=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)
if [ -d "$CHECKPOINT" ]; then LOAD="$CHECKPOINT"; else LOAD=/tmp; fi
torchrun --nproc_per_node 8 --master_addr $HOST x.py --num-layers 11 --load $LOAD
""",
        8,
    ),
}
OF_SLURM: dict[str, tuple[str, dict[str, str], int]] = {
    "short options without a variable": (
        "srun -N 2 --gpus-per-node 8 python pretrain.py --num-layers 48 --bf16 && echo done",
        {"num-layers": "48", "bf16": ""},
        16,
    ),
    "slurm with tasks": (
        """
#SBATCH --nodes=16
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
TP=4
srun -c 8 --label bash -c "python pretrain.py --num-layers 48 --tensor-model-parallel-size $TP"
""",
        {"num-layers": "48", "tensor-model-parallel-size": "4"},
        64,
    ),
    "slurm with torchrun": (
        """
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=1
LAUNCHER="torchrun --nproc_per_node $SLURM_GPUS_ON_NODE --nnodes $SLURM_JOB_NUM_NODES"
CMD="pretrain_gpt.py --num-layers 12"
srun bash -c "$LAUNCHER $CMD"
""",
        {"num-layers": "12"},
        32,
    ),
}


def handed_over(text: str, folder: Path) -> dict[str, str]:
    """Arguments of the program that a shell starts, where every launcher prints its words."""
    for tool in ("torchrun", "mpirun", "deepspeed", "srun", "python", "scontrol"):
        stand_in = folder / tool
        stand_in.write_text('#!/bin/bash\nfor word in "$@"; do printf "%s\\n" "$word"; done\n')
        stand_in.chmod(0o755)
    path = folder / "run.sh"
    path.write_text(text)
    ran = subprocess.run(
        ["/bin/bash", str(path)],
        env={"PATH": f"{folder}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    words, values = iter(ran.partition(".py\n")[2].split("\n")), dict[str, str]()
    for word in words:
        if word.startswith("--"):
            key, _, values[key] = word.removeprefix("--").partition("=")
        elif word:
            values[key] = word.removeprefix("(").removesuffix(")")
    return values


@pytest.mark.parametrize("name", CASES)
def test_a_script_is_read_as_a_shell_reads_it(name: str, tmp_path: Path) -> None:
    """Run for real, it hands over the same arguments."""
    text, npus = CASES[name]
    found = script_arguments(tmp_path / "run.sh", text)
    assert (found.launches, found.npus) == (True, npus)
    values = handed_over(text, tmp_path)
    assert "num-layers" in values
    assert values.keys() <= found.values.keys()
    known = {key: value for key, value in found.values.items() if not unknown_in(value)}
    of_program = {key: known[key] for key in known.keys() - {"np", "master-port"}}
    assert of_program.items() <= values.items()


@pytest.mark.parametrize("name", OF_SLURM)
def test_a_script_is_read_as_slurm_runs_it(name: str, tmp_path: Path) -> None:
    text, values, npus = OF_SLURM[name]
    found = script_arguments(tmp_path / "run.sh", text)
    assert values.items() <= found.values.items()
    assert (found.launches, found.npus) == (True, npus)


UNDECIDED = """
if [ "$PRECISION" = fp8 ]; then P="--fp8-format hybrid"; else P="--bf16"; fi
torchrun --nproc_per_node 8 x.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 \\
  --seq-length 128 --max-position-embeddings 128 --micro-batch-size 1 --global-batch-size 8 $P
"""


def test_a_flag_in_a_branch_that_nobody_decides_is_no_guess(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(UNDECIDED)
    code, out, err = run("simulate", path)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {path}: line 2: P by ")
    assert "give --env PRECISION=VALUE" in err
    for precision, words in (("fp8", "fp8"), ("bf16", "bf16")):
        code, _, _ = run("simulate", path, "--env", f"PRECISION={precision}", "-q")
        assert code == 0
        asked = read_model(path, {"PRECISION": precision}).asked
        assert asked.get("precision", "bf16") == words


def test_options_of_the_command_come_before_the_script(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"TP=$1\npython x.py {BASE} --tensor-model-parallel-size $TP --swiglu $MORE")
    code, _, err = run("simulate", path, "--gpus", "8", "-q")
    assert code == 2
    assert (
        "--tensor-model-parallel-size is ${1}: nothing sets $1: give --env 1=VALUE, or --tp" in err
    )
    texts = [
        run("simulate", path, "--gpus", "8", *more, "-q")[1]
        for more in (("--tp", "2"), ("--env", "1=2"))
    ]
    assert texts[0] == texts[1] != ""


def test_a_launch_script_without_a_size_asks_for_it(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"N=$NODES\ntorchrun --nproc_per_node 8 --nnodes $N x.py {BASE}")
    code, _, err = run("simulate", path, "-q")
    assert code == 2
    assert err.endswith("nothing says on how many GPUs it runs: give --gpus\n")
    assert run("simulate", path, "--gpus", "16", "-q")[0] == 0


def test_two_jobs_in_one_script_are_told_apart(tmp_path: Path) -> None:
    text = "A=1\nx.py --num-layers $A\nx.py --num-layers 2"
    with pytest.raises(WorkloadError, match="lines 2, 3 train different jobs"):
        script_arguments(tmp_path / "run.sh", text)


def test_a_file_beside_the_script_is_sourced(tmp_path: Path) -> None:
    (tmp_path / "model.sh").write_text("LAYERS=17")
    text = "DIR=$(dirname $0)\nsource $DIR/model.sh\npython x.py --num-layers $LAYERS"
    assert script_arguments(tmp_path / "run.sh", text).values["num-layers"] == "17"


NAMES = st.sampled_from(["A", "B", "C"])
WORDS = st.sampled_from(["1", "2", "8b", "x", ""])


@st.composite
def statements(draw: st.DrawFn, depth: int = 0) -> str:
    """Random assignments, tests and cases over a few variables."""
    kinds = ["set", "default", "sum"] + ["if", "case", "and"] * (depth < 2)
    name, other, word = draw(NAMES), draw(NAMES), draw(WORDS)
    match draw(st.sampled_from(kinds)):
        case "set":
            return f'{name}="{word}"'
        case "default":
            return f"{name}=${{{other}:-{word or 1}}}"
        case "sum":
            return f"{name}=$(( ${{#{other}}} * 3 + 1 ))"
        case "if":
            first, second = draw(statements(depth + 1)), draw(statements(depth + 1))
            sign = draw(st.sampled_from(["=", "!="]))
            return f'if [ "${other}" {sign} "{word}" ]; then\n{first}\nelse\n{second}\nfi'
        case "case":
            first, second = draw(statements(depth + 1)), draw(statements(depth + 1))
            return f'case "${other}" in\n1|8*) {first};;\n*) {second};;\nesac'
        case _:
            sign = draw(st.sampled_from(["&&", "||"]))
            return f'[[ -n "${other}" ]] {sign} {draw(statements(depth + 2))}'


@given(st.lists(statements(), min_size=1, max_size=6))
def test_random_scripts_set_what_bash_sets(lines: list[str]) -> None:
    text = "A=1\nB=x\nC=\n" + "\n".join(lines)
    ran = subprocess.run(
        ["/bin/bash", "-c", text + '\necho "$A|$B|$C"'], capture_output=True, text=True, check=True
    ).stdout.strip()
    _, variables = read_script(Path("run.sh"), text, {})
    found: Any = "|".join(variables[name][0] for name in "ABC")
    assert found == ran


PLAIN = (
    "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --vocab-size 1000 "
    "--make-vocab-size-divisible-by 1 --seq-length 1024 --max-position-embeddings 1024 "
    "--micro-batch-size 1 --global-batch-size 8 --bf16"
)


def written(tmp_path: Path, arguments: str, program: str = "pretrain_gpt.py") -> Path:
    script = tmp_path / "train.sh"
    script.write_text(f"#!/bin/bash\nN=8\ntorchrun --nproc_per_node $N {program} {arguments}\n")
    return script


@pytest.mark.parametrize(
    ("more", "asked"),
    [
        ("--checkpoint-activations", {"recompute": "full"}),
        ("--deepspeed --zero-stage 2", {"zero": 2, "framework": "megatron-deepspeed"}),
        ("--context-parallel-size 2 --context-parallel-algo megatron_cp_algo", {"cp_comm": "ring"}),
        (
            "--context-parallel-size 2 --context-parallel-algo ulysses_cp_algo",
            {"cp_comm": "all_to_all"},
        ),
        ("--grad-reduce-in-bf16", {"states": "bf16-gradients"}),
    ],
)
def test_words_of_other_megatrons_are_read(
    more: str, asked: dict[str, object], tmp_path: Path
) -> None:
    assert asked.items() <= read_model(str(written(tmp_path, f"{PLAIN} {more}"))).asked.items()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--optimizer muon", "--optimizer muon is not modelled: priced as Adam"),
        ("--optimizer-cpu-offload", "--optimizer-cpu-offload: what offloading"),
        ("--deepspeed --deepspeed_config ds.json", "--deepspeed without --zero-stage"),
    ],
)
def test_what_is_priced_otherwise_is_said(more: str, said: str, tmp_path: Path) -> None:
    model = read_model(str(written(tmp_path, f"{PLAIN} {more}")))
    assert any(said in note for note in model.warnings)


def test_sizes_have_the_words_of_their_megatrons_and_one_expert_is_none(tmp_path: Path) -> None:
    text = f"{PLAIN} --pad-vocab-size-to 1024 --num-key-value-heads 2 --num-experts 1"
    model = read_model(str(written(tmp_path, text))).architecture
    assert (model.vocabulary, model.is_sparse) == (1024, False)
    attention = model.layers[0].attention
    assert isinstance(attention, GroupedAttention)
    assert attention.kv_heads == 2


def test_other_trainings_and_other_dialects_are_refused(run: Run, tmp_path: Path) -> None:
    for program, more, why in (
        ("pretrain_bert.py", "", "pretrain_bert.py is no pre-training of a decoder"),
        ("pretrain_gpt.py", " --noop-layers 3,4", "--noop-layers 3,4: what it changes"),
        ("pretrain_gpt.py", " --moe-expert-parallel-size 4", "--moe-expert-parallel-size 4: what"),
    ):
        status, _, err = run("simulate", written(tmp_path, PLAIN + more, program))
        assert status == 2
        assert why in err


def test_a_script_that_trains_nothing_known_is_told(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/bash\nset -e\nbash other.sh\n")
    status, _, err = run("simulate", script)
    assert status == 2
    assert "no command that trains a model is known in it: give the script that it calls" in err
    script.write_text("torchrun --nproc_per_node 4 train.py --job.config_file conf/job.toml\n")
    assert "give conf/job.toml or the script" in run("simulate", script)[2]
    (tmp_path / "conf").mkdir()
    job = '[model]\nname = "llama3"\nflavor = "8B"\n[activation_checkpoint]\nmode = "full"\n'
    (tmp_path / "conf" / "job.toml").write_text(job)
    model = read_model(script)
    assert (model.architecture.depth, model.asked["npus"]) == (32, 4)


def test_variables_given_replace_what_branches_leave_open(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    loop = 'L=0\nwhile getopts ":l:" opt; do case $opt in l) L="$OPTARG";; esac; done\n'
    script.write_text(f"{loop}torchrun --nproc_per_node 4 x.py {PLAIN} --num-layers $L\n")
    with pytest.raises(WorkloadError, match="give --env L=VALUE"):
        read_model(script)
    assert read_model(script, {"L": "3"}).architecture.depth == 3


@pytest.mark.parametrize("broken", ["${}", "${X/}", "${X#}"])
def test_what_is_no_expansion_is_not_known(broken: str, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"X=a\ntorchrun --nproc_per_node 4 x.py {PLAIN} --load {broken}\n")
    assert read_model(script).asked["npus"] == 4


def test_a_command_that_a_branch_changes_is_asked_for(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    app = f'APP="x.py {PLAIN}"\n[ $PROFILE = on ] && APP+=" --profile"\n'
    script.write_text(f"{app}torchrun --nproc_per_node 4 $APP\n")
    with pytest.raises(WorkloadError, match="give --env PROFILE=VALUE"):
        read_model(script)
    assert read_model(script, {"PROFILE": "off"}).asked["npus"] == 4


def test_a_job_that_submits_itself_is_read_as_slurm_runs_it(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    guard = 'if [ -z $SLURM_JOB_ID ]; then sbatch "$0"; exit; fi'
    job = f"#SBATCH --nodes=2 --ntasks-per-node=8\n{guard}\nsrun pretrain_gpt.py {PLAIN}\n"
    path.write_text(job)
    assert read_model(str(path)).asked["npus"] == 16


def test_what_a_person_is_to_fill_in_hides_no_arguments(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    words = f"{PLAIN} --load <PATH TO A> --use-distributed-optimizer"
    path.write_text(f'O="{words}"\nsh -c "torchrun --nproc_per_node 8 pretrain_gpt.py $O"\n')
    assert read_model(str(path)).asked["zero"] == 1


def test_switches_of_trainers_need_no_value(tmp_path: Path) -> None:
    text = "--model_name_or_path meta-llama/Meta-Llama-3-8B --bf16 --gradient_checkpointing"
    asked = read_model(str(written(tmp_path, text, "train.py"))).asked
    assert (asked["precision"], asked["recompute"]) == ("bf16", "full")


def test_other_names_of_options_replace_what_a_script_asks(tmp_path: Path) -> None:
    found = read_inputs(written(tmp_path, PLAIN), "hgx-h100", {"gpus": 16}).options
    assert found.npus == 16
