"""The machine's facts: which cores count, what disturbs, and that an absent sensor is absent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from localspec import machine

BUSY = "import sys\nprint('on', flush=True)\nwhile True: pass"


@pytest.fixture
def busy():
    """A process that keeps one processor busy."""
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def cores(siblings: dict[int, str], capacity: dict[int, int] | None = None) -> dict[str, str]:
    base = "sys/devices/system/cpu/cpu"
    files = {f"{base}{cpu}/topology/thread_siblings_list": s for cpu, s in siblings.items()}
    return files | {f"{base}{cpu}/cpu_capacity": str(c) for cpu, c in (capacity or {}).items()}


HYPERTHREADS = {0: "0,4", 1: "1,5", 2: "2,6", 3: "3,7", 4: "0,4", 5: "1,5", 6: "2,6", 7: "3,7"}
# Two P cores with two threads each, four E cores.
HYBRID = {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3", 4: "4", 5: "5", 6: "6", 7: "7"}


def test_hardware_threads_of_one_core_count_once(tmp_path: Path) -> None:
    root = tree(tmp_path, cores(HYPERTHREADS))
    assert machine._linux_cores(set(range(8)), root) == 4


def test_only_cores_that_the_process_may_use_count(tmp_path: Path) -> None:
    root = tree(tmp_path, cores(HYPERTHREADS))
    assert machine._linux_cores({0, 4, 1}, root) == 2


def test_efficiency_cores_do_not_count(tmp_path: Path) -> None:
    root = tree(tmp_path, cores(HYBRID) | {"sys/devices/cpu_core/cpus": "0-3"})
    assert machine._linux_cores(set(range(8)), root) == 2


def test_a_process_bound_to_efficiency_cores_uses_them(tmp_path: Path) -> None:
    root = tree(tmp_path, cores(HYBRID) | {"sys/devices/cpu_core/cpus": "0-3"})
    assert machine._linux_cores({4, 5, 6}, root) == 3


def test_capacity_tells_big_cores_from_little(tmp_path: Path) -> None:
    single = {cpu: str(cpu) for cpu in range(8)}
    # One prime core, three big, four little: the little ones are out.
    capacity = {0: 1024, 1: 870, 2: 870, 3: 870, 4: 310, 5: 310, 6: 310, 7: 310}
    root = tree(tmp_path, cores(single, capacity))
    assert machine._linux_cores(set(range(8)), root) == 4


def test_without_sys_nothing_is_guessed(tmp_path: Path) -> None:
    assert machine._linux_cores({0, 1}, tmp_path) is None


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "150000 100000"}, 1.5),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, None),
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/cpu.max": "200000 100000",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000",
            },
            2.0,
        ),
        # In a container the group's path is the host's.
        ({"proc/self/cgroup": "0::/docker/1", "sys/fs/cgroup/cpu.max": "50000 100000"}, 0.5),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/x\n2:memory:/x",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "300000",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000",
            },
            3.0,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            None,
        ),
    ],
)
def test_container_quotas(tmp_path: Path, files: dict[str, str], limit: float | None) -> None:
    assert machine._cgroup_limit(tree(tmp_path, files)) == limit


@pytest.mark.parametrize(("quota", "threads"), [(None, 2), (1.5, 1), (0.2, 1), (64.0, 2)])
def test_a_quota_lowers_the_threads(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, threads: int
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(machine, "_allowed_cpus", lambda: {0, 1, 2, 3})
    monkeypatch.setattr(machine, "_linux_cores", lambda allowed, root: 2)
    monkeypatch.setattr(machine, "_cgroup_limit", lambda root: quota)
    assert machine.default_threads() == threads


@pytest.mark.parametrize(
    ("cores", "allowed", "quota", "threads"),
    [
        (16, 16, None, 15),
        (2, 2, None, 2),  # a half of two is more than drawing costs
        (8, 16, None, 8),  # what draws has second hardware threads, or efficiency cores
        (16, 16, 8.0, 7),
    ],
)
def test_a_processor_of_many_is_left_to_what_draws(
    monkeypatch: pytest.MonkeyPatch, cores: int, allowed: int, quota: float | None, threads: int
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(machine, "_allowed_cpus", lambda: set(range(allowed)))
    monkeypatch.setattr(machine, "_linux_cores", lambda allowed, root: cores)
    monkeypatch.setattr(machine, "_cgroup_limit", lambda root: quota)
    assert machine.threads_beside_drawing() == threads


def test_the_real_machine_has_a_thread_to_use() -> None:
    assert 1 <= machine.default_threads() <= (psutil.cpu_count() or 1)


def test_the_description_is_plain_json() -> None:
    facts = machine.describe()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts["cpu"]
    assert facts["memory_bytes"] == psutil.virtual_memory().total


def test_absent_sensors_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses():
        raise NotImplementedError

    monkeypatch.setattr(psutil, "cpu_freq", refuses)
    monkeypatch.delattr(psutil, "sensors_battery", raising=False)
    assert machine.LoadMeter().sample().clock is None
    assert machine.describe()["on_battery"] is None
    monkeypatch.delattr(psutil, "cpu_freq")
    assert machine.LoadMeter().sample().clock is None


class Times(SimpleNamespace):
    def _asdict(self) -> dict[str, float]:
        return vars(self)


def meter_over(monkeypatch: pytest.MonkeyPatch, before: Times, after: Times, own: list[float]):
    readings = iter([before, after])
    seconds = iter(own)
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(readings))
    monkeypatch.setattr(machine, "_seconds", lambda process: next(seconds))
    return machine.LoadMeter().sample()


def test_the_own_processes_are_no_competing_load(monkeypatch: pytest.MonkeyPatch) -> None:
    # 20 s on the clock of ten processors' time, 8 busy, 6 of them ours.
    before = Times(user=100.0, system=10.0, idle=200.0, iowait=5.0)
    after = Times(user=107.0, system=11.0, idle=211.0, iowait=6.0)
    sample = meter_over(monkeypatch, before, after, [40.0, 46.0])
    assert (sample.other_load, sample.own_seconds) == pytest.approx((0.1, 6.0))


def test_time_stolen_by_the_hypervisor_is_competing_load(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Times(user=100.0, idle=100.0, steal=0.0, guest=50.0)
    after = Times(user=105.0, idle=100.0, steal=5.0, guest=55.0)
    assert meter_over(monkeypatch, before, after, [10.0, 15.0]).other_load == pytest.approx(0.5)


def test_clocks_that_tick_apart_give_no_negative_load(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = Times(user=0.0, idle=0.0), Times(user=1.0, idle=9.0)
    assert meter_over(monkeypatch, before, after, [0.0, 1.2]).other_load == 0


def test_no_time_passed_gives_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    same = Times(user=1.0, idle=1.0)
    assert meter_over(monkeypatch, same, same, [0.0, 0.0]).other_load is None


def test_a_process_that_ended_is_left_out(busy, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([Times(user=0.0, idle=0.0), Times(user=5.0, idle=5.0)])
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(readings))
    meter = machine.LoadMeter([busy.pid])
    busy.kill()
    busy.wait()
    assert meter.sample().other_load == pytest.approx(0.5, abs=0.1)  # less our own few ticks


@pytest.mark.parametrize(
    ("processors", "load", "felt"),
    [(2, 0.1, False), (2, 0.13, True), (16, 0.03, False), (16, 0.051, True), (2, None, False)],
)
def test_what_of_other_load_is_felt(
    monkeypatch: pytest.MonkeyPatch, processors: int, load: float | None, felt: bool
) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda: processors)
    assert machine.competes(load) is felt


def test_a_competing_process_is_named(busy, monkeypatch: pytest.MonkeyPatch) -> None:
    # Our own children are never competitors, so this one is made a stranger.
    monkeypatch.setattr(machine, "_COMPETING_SHARE", 0.001)  # one process is little on 64 cores
    monkeypatch.setattr(psutil.Process, "children", lambda self, recursive=False: [])
    (load,) = [w for w in machine.warnings() if "Other programs" in w]
    assert "logical processors" in load
    assert "(most: " in load


@pytest.mark.parametrize(
    ("share", "processors", "said"),
    [
        (0.06, 2, None),  # 0.1 of a processor: a machine at rest
        (0.2, 2, "0.4 of this machine's 2"),
        (0.01, 64, None),
        (0.06, 64, "3.8 of this machine's 64"),
    ],
)
def test_what_a_machine_does_at_rest_is_no_load(
    monkeypatch: pytest.MonkeyPatch, share: float, processors: int, said: str | None
) -> None:
    monkeypatch.setattr(machine, "_COMPETING_SECONDS", 0.0)
    monkeypatch.setattr(psutil, "cpu_count", lambda: processors)
    monkeypatch.setattr(machine.LoadMeter, "sample", lambda _: machine.Sample(share, None))
    warned = [w for w in machine.warnings() if "Other programs" in w]
    assert [w.split(" logical")[0].removeprefix("Other programs use ") for w in warned] == (
        [said] if said else []
    )


def test_the_engine_is_no_competitor(busy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_COMPETING_SHARE", 0.0)
    monkeypatch.setattr(machine, "_COMPETING_PROCESSORS", 0.0)
    monkeypatch.setattr(psutil.Process, "children", lambda self, recursive=False: [])
    assert not any(f"process {busy.pid}" in w for w in machine.warnings(engine_pid=busy.pid))


def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_competing_load", lambda pid: None)
    monkeypatch.setattr(machine, "_on_battery", lambda: False)
    monkeypatch.setattr(machine, "_saves_power", lambda root: False)
    memory = SimpleNamespace(total=16 << 30, available=8 << 30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)


def test_a_quiet_machine_has_no_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet(monkeypatch)
    assert machine.warnings() == []
    assert machine.warnings(needed_bytes=7 << 30) == []


def test_battery_and_power_saving_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet(monkeypatch)
    monkeypatch.setattr(machine, "_on_battery", lambda: True)
    monkeypatch.setattr(machine, "_saves_power", lambda root: True)
    battery, governor = machine.warnings()
    assert "battery" in battery
    assert "governor" in governor


def test_low_memory_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet(monkeypatch)
    (needed,) = machine.warnings(needed_bytes=9 << 30)
    assert "8.0 GiB" in needed and "9.0 GiB" in needed
    memory = SimpleNamespace(total=16 << 30, available=1 << 30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    (low,) = machine.warnings()
    assert "1.0 of 16.0 GiB" in low


@pytest.mark.parametrize(
    ("files", "saves"),
    [
        ({}, False),
        ({"scaling_governor": "powersave", "scaling_driver": "acpi-cpufreq"}, True),
        ({"scaling_governor": "schedutil", "scaling_driver": "acpi-cpufreq"}, False),
        # There powersave is the ordinary setting, and the preference is what holds the clock down.
        (
            {
                "scaling_governor": "powersave",
                "scaling_driver": "intel_pstate",
                "energy_performance_preference": "balance_performance",
            },
            False,
        ),
        (
            {
                "scaling_governor": "powersave",
                "scaling_driver": "intel_pstate",
                "energy_performance_preference": "power",
            },
            True,
        ),
    ],
)
def test_which_governors_hold_the_clock_down(
    tmp_path: Path, files: dict[str, str], saves: bool
) -> None:
    base = "sys/devices/system/cpu/cpu0/cpufreq/"
    assert machine._saves_power(tree(tmp_path, {base + k: v for k, v in files.items()})) is saves
