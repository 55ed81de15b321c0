"""A device measured: the constants come back from times that were made of them."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import Run
from timers import FormulaTimer

from stepsim.base.errors import CalibrationError
from stepsim.files.accelerators import device_toml, read_device, read_framework
from stepsim.files.beside_csv import read_beside_rows
from stepsim.files.load import read_model
from stepsim.measured.calibration.overlap import fit_overlap, mean_error, predicted_ratio
from stepsim.measured.device import torch_timer
from stepsim.measured.device.fit import AttentionSample, fit_attention, fit_rate
from stepsim.measured.device.kernels import AttentionCall, KernelTimes, LayerCall, ProductCall
from stepsim.measured.device.measure import MeasuredDevice, Measurement, measure_device
from stepsim.measured.device.predicted import predicted_layer
from stepsim.measured.device.shapes import Shapes
from stepsim.measured.device.torch_load import SyntheticStream
from stepsim.measured.kernels_beside import SyntheticLoad
from stepsim.workload.model.plan import Precision
from stepsim.workload.overlap import GpuLimits
from stepsim.workload.rows import Phase

H100 = read_device("h100")


def shapes_of(name: str, *tp: int) -> Shapes:
    architecture = read_model(name).architecture
    return Shapes(architecture=architecture, batch=1, sequence=4096, tp=tp or (1,))


def measured(*, base: bool = True, name: str = "llama-3-8b") -> MeasuredDevice:
    asked = Measurement(
        shapes=shapes_of(name, 1, 8), precisions=(Precision.BF16, Precision.FP8), sustained_s=1.0
    )
    return measure_device(FormulaTimer(H100), asked, H100 if base else None)


def test_constants_come_back_from_times_made_of_them() -> None:
    found = measured().device
    for precision in (Precision.BF16, Precision.FP8):
        known, rate = H100.rates[precision], found.rates[precision]
        assert rate.rate == pytest.approx(known.rate, rel=1e-3)
        assert rate.start_ps == pytest.approx(known.start_ps, rel=0.02)
        assert rate.peak == known.peak
    known_attention = H100.attention["flash3"]
    assert found.attention["sdpa"].rate == pytest.approx(known_attention.rate, rel=0.06)
    assert found.attention["sdpa"].backward == pytest.approx(known_attention.backward, rel=0.06)
    assert found.attention["sdpa"].narrow == pytest.approx(known_attention.narrow)
    assert found.memory_bandwidth * found.memory_share == pytest.approx(H100.bytes_per_s)
    assert found.sustained == pytest.approx(1 / 1.25)
    assert found.kernel_floor_ps == H100.kernel_floor_ps
    assert (found.watts, found.topology) == (H100.watts, H100.topology)


def test_kernels_are_predicted_by_what_was_made_of_them() -> None:
    found = measured()
    layer = predicted_layer(shapes_of("llama-3-8b"), found.device, read_framework("megatron-core"))
    assert 0 < layer.forward_s < layer.backward_s
    assert layer.kept_bytes > 2 * 4096 * 4096
    assert len(found.products) == 5 * 3 * 2 * 2 * 2 - 3 * 2 * 2  # the head in bf16 alone


def test_without_a_data_sheet_peaks_are_measured_rates() -> None:
    found = measured(base=False)
    assert found.device.rates[Precision.BF16].peak == found.device.rates[Precision.BF16].rate
    assert any("no data sheet" in note for note in found.notes)
    assert found.device.memory_share == 1.0


def test_what_a_model_has_beside_dense_layers_is_named() -> None:
    notes = " ".join(measured(name="deepseek-v3").notes)
    assert "grouped products of experts are not measured" in notes
    assert "no layer is measured" in notes


def test_a_written_device_is_the_one_that_is_read(tmp_path: Path) -> None:
    for each in (measured().device, H100, read_device("b200"), read_device("mi300x")):
        path = tmp_path / f"{each.name}.toml"
        path.write_text(device_toml(each))
        read = read_device(path)
        assert (read.name, read.memory_bytes) == (each.name, each.memory_bytes)
        assert read.kernel_floor_ps == each.kernel_floor_ps
        assert read.sources == each.sources
        assert read.rates.keys() == each.rates.keys()
        for precision, rate in each.rates.items():
            assert read.rates[precision].rate == pytest.approx(rate.rate, rel=1e-3)
            assert read.rates[precision].start_ps == rate.start_ps


@pytest.mark.parametrize(
    ("phase", "shape"),
    [
        (Phase.FORWARD, (7, 5, 3)),
        (Phase.INPUT_GRAD, (7, 3, 5)),
        (Phase.WEIGHT_GRAD, (5, 3, 7)),
    ],
)
def test_layouts_of_a_product(phase: Phase, shape: tuple[int, int, int]) -> None:
    call = ProductCall(phase=phase, tokens=7, inner=3, outer=5, precision=Precision.BF16)
    assert call.shape == shape
    assert call.flops == 2 * 7 * 3 * 5


def test_operations_of_causal_attention() -> None:
    forward = AttentionCall(batch=2, heads=3, kv_heads=1, head_dim=4, sequence=8)
    backward = AttentionCall(batch=2, heads=3, kv_heads=1, head_dim=4, sequence=8, backward=True)
    half_of_both_products = 2 * (2 * 8 * 8 * 4) * (2 * 3) / 2
    assert forward.flops == half_of_both_products
    assert backward.flops == 2.5 * half_of_both_products


def test_a_fit_needs_shapes() -> None:
    with pytest.raises(CalibrationError, match="2 shapes: expected at least 3"):
        fit_rate([1e12, 2e12], [1.0, 2.0], None)
    sample = AttentionSample(sequence=8, rows=1, flops=1.0, seconds=1.0)
    with pytest.raises(CalibrationError, match="expected samples of both passes"):
        fit_attention([sample], [])


def test_times_that_fall_with_work_have_no_start() -> None:
    fitted = fit_rate([1e12, 2e12, 4e12], [1.0, 0.5, 0.25], 5e12)
    assert fitted.rate.start_ps == 0
    assert fitted.rate.peak == 5e12
    assert fitted.residual > 0.5


def test_the_spread_leaves_a_tenth_on_each_side_out() -> None:
    times = KernelTimes(seconds=(*([1.0] * 10), 1.1, 0.9, 50.0, 0.01, *([1.0] * 6)))
    assert times.median == 1.0
    assert times.spread == pytest.approx(0.0)


def test_torch_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        CalibrationError, match=r"measure needs torch \(pip install 'stepsim\[gpu\]'"
    ):
        torch_timer.make_timer(on_gpu=True, repeat=1)


@pytest.mark.parametrize("hip", [None, "6.2"])
def test_loads_need_a_torch_that_compiles_kernels(hip: str | None) -> None:
    cuda = SimpleNamespace(_compile_kernel=None)
    torch = SimpleNamespace(cuda=cuda, version=SimpleNamespace(hip=hip), __version__="2.5")
    with pytest.raises(CalibrationError, match="compiles no kernels with all of the shared"):
        SyntheticStream(torch)


def test_kernels_run_on_torch() -> None:
    pytest.importorskip("torch", reason="torch is not installed (extra gpu)", exc_type=ImportError)
    timer = torch_timer.make_timer(on_gpu=False, repeat=2)
    with pytest.raises(CalibrationError, match="overlap: a CPU has no multiprocessors"):
        timer.overlap([], [], Path("trace.json"))
    for phase in Phase:
        call = ProductCall(phase=phase, tokens=8, inner=16, outer=32, precision=Precision.BF16)
        assert timer.product(call).median > 0
    for backward in (False, True):
        attention = AttentionCall(
            batch=1, heads=2, kv_heads=1, head_dim=8, sequence=16, backward=backward
        )
        assert timer.attention(attention).median > 0
    layer = LayerCall(
        batch=1, sequence=16, hidden=16, heads=2, kv_heads=1, head_dim=8, width=32, gated=True
    )
    assert timer.layer(layer, None).kept_bytes > 16 * 16 * 2
    with pytest.raises(CalibrationError, match="no products in nvfp4"):
        timer.product(
            ProductCall(
                phase=Phase.FORWARD, tokens=8, inner=16, outer=32, precision=Precision.NVFP4
            )
        )


@pytest.fixture
def formula(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_timer, "make_timer", lambda on_gpu, repeat: FormulaTimer(H100))


@pytest.mark.usefixtures("formula")
def test_the_command_writes_what_others_take(run: Run, tmp_path: Path) -> None:
    device, csv, trace = (tmp_path / name for name in ("gpu.toml", "gemm.csv", "layer.json"))
    code, out, err = run(
        *("measure", "llama-3-8b", "-o", device, "--device", "h100", "--dtype", "bf16,fp8"),
        *("--csv", csv, "--kineto", trace),
    )
    assert (code, trace.read_text()) == (0, "{}")
    assert "rates of mxfp8" not in out
    assert "product forward, 4096 x 6144 x 4096, bf16" in out
    assert "layer launches  3 ms" in out
    assert "torch 2.0, CUDA 12" in device.read_text()
    assert "rates of fp16 are those of H100" in err
    small = ("llama-3-8b", "--npus", "8", "--tp", "2", "--global-batch", "8", "-q")
    code, out, _ = run("simulate", *small, "--device", device)
    assert code == 0
    assert out.startswith("llama-3-8b on 8 Formula GPU")
    again = tmp_path / "again.toml"
    code, out, _ = run(
        *("calibrate", "model", "--gemm", csv, "--device", device, "-o", again, "-q"),
        *("--dtype", "fp8"),
    )
    assert code == 0
    assert "Formula GPU  fp8           1375  9.4 us" in out


@pytest.mark.usefixtures("formula")
def test_kernels_beside_loads_are_a_table_that_the_law_is_held_against(
    run: Run, tmp_path: Path
) -> None:
    """The timer's kernels obey the law, so that it is off by nothing."""
    table = tmp_path / "rows.csv"
    code, out, _ = run(
        *("measure", "llama-3-8b", "-o", tmp_path / "gpu.toml", "--device", "h100", "-q"),
        *("--overlap", table, "--comm-blocks", "8,24", "--comm-rate", "1.2 TB/s"),
    )
    assert code == 0
    rows = read_beside_rows(table)
    loads = {SyntheticLoad.called(row.comm_kernel) for row in rows}
    asked = {SyntheticLoad(blocks=k, bytes_per_s=rate) for k in (8, 24) for rate in (0.0, 1.2e12)}
    assert loads == asked
    gpu = GpuLimits.of(H100)
    assert mean_error(rows, lambda row: predicted_ratio(row, gpu)) < 1e-6
    assert mean_error(rows, lambda row: 1.0) > 0.1
    assert "kernels beside loads" in out
    assert fit_overlap(rows, gpu) == []


@pytest.mark.usefixtures("formula")
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--dtype", "fp8"), "precision is 'fp8': expected bf16 among them"),
        (("--comm-blocks", "0"), "comm_blocks is '0': expected numbers from 1 to 64"),
        (("--dtype", "int8"), "precision is 'int8': expected one of bf16"),
        (("--tp", "3"), "heads is 32: expected a multiple of tp, 3"),
        (("--sustain", "5"), "'5' has no unit"),
        (("--device", "h900"), "no device named 'h900'"),
    ],
)
def test_the_command_refuses(run: Run, tmp_path: Path, wrong: tuple[str, ...], said: str) -> None:
    target = tmp_path / "gpu.toml"
    code, out, err = run("measure", "llama-3-8b", "-o", target, *wrong)
    assert (code, out) == (2, "")
    assert said in err
    assert not target.exists()
