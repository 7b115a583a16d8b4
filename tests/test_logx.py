"""The logger: table, configuration, saved models, statistics."""

import gc
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import weakref

import joblib
import numpy as np
import pytest
import torch

from spinup.training.errors import UserError
from spinup.utils import logx
from spinup.utils.logx import EpochLogger, Logger, color2num, colorize

ESC = "\x1b"


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.fixture
def logger(tmp_path):
    with EpochLogger(tmp_path / "run", exp_name="demo") as logger:
        yield logger


def table(logger):
    """The rows of progress.txt, header first."""
    with open(os.path.join(logger.output_dir, "progress.txt"), encoding="utf-8", newline="") as file:
        text = file.read()
    assert text.endswith("\n") or not text
    return [line.split("\t") for line in text.split("\n")[:-1]]


# --- colours ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "color, options, codes",
    [
        ("green", {}, "32"),
        ("gray", dict(bold=True), "30;1"),
        ("red", dict(highlight=True), "41"),
        ("cyan", dict(bold=True, highlight=True), "46;1"),
    ],
)
def test_colorize(color, options, codes):
    assert colorize("text", color, **options) == f"{ESC}[{codes}mtext{ESC}[0m"


def test_colorize_refuses_unknown_colors():
    with pytest.raises(KeyError):
        colorize("text", "beige")


@pytest.mark.parametrize("options, codes", [({}, "38;5;161"), (dict(bold=True, highlight=True), "48;5;161;1")])
def test_L02_crimson_is_a_real_color(options, codes):
    assert "crimson" in color2num
    assert colorize("text", "crimson", **options) == f"{ESC}[{codes}mtext{ESC}[0m"


@pytest.mark.parametrize(
    "terminal, variable, colored",
    [
        (False, None, False),
        (True, None, True),
        (True, "NO_COLOR", False),
        (False, "FORCE_COLOR", True),
    ],
)
def test_L01_color_only_on_a_terminal(logger, monkeypatch, capsys, terminal, variable, colored):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    if variable:
        monkeypatch.setenv(variable, "1")
    capsys.readouterr()
    logger.log("hello")
    logger.save_config({})
    heading, *_ = capsys.readouterr().out.splitlines()
    assert heading == (colorize("hello", "green", bold=True) if colored else "hello")


# --- construction and files ---------------------------------------------------------------------------------


def test_construction(tmp_path, capsys):
    logger = Logger(str(tmp_path / "a" / "b"), "table.tsv", "demo")
    assert logger.output_dir == str(tmp_path / "a" / "b")
    assert logger.output_file.name == str(tmp_path / "a" / "b" / "table.tsv")
    assert (logger.exp_name, logger.first_row) == ("demo", True)
    assert (logger.log_headers, logger.log_current_row) == ([], {})
    assert capsys.readouterr().out == f"Logging data to {logger.output_file.name}\n"


def test_other_ranks_touch_no_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(logx, "proc_id", lambda: 1)
    with EpochLogger(tmp_path / "run", exp_name="demo") as logger:
        assert logger.output_dir is None and logger.output_file is None
        logger.setup_pytorch_saver(torch.nn.Linear(1, 1))
        logger.setup_tf_saver(None, {}, {})
        logger.log("hello")
        logger.save_config({"a": 1})
        logger.save_state({"env": None})
        logger.store(X=1)
        logger.log_tabular("X")
        logger.dump_tabular()
        assert not logger.first_row and not logger.log_current_row
        with pytest.raises(AssertionError):
            logger.log_tabular("New", 1)
    assert capsys.readouterr().out == ""
    assert not os.listdir(tmp_path)


def test_L03_default_directories_are_unique(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    loggers = [Logger() for _ in range(3)]
    assert len({logger.output_dir for logger in loggers}) == 3
    for logger in loggers:
        assert os.path.dirname(logger.output_dir) == str(tmp_path / "experiments")


def test_L03_experiments_directory_of_another_user(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert os.path.dirname(Logger().output_dir) == str(tmp_path)


def test_L04_old_table_is_kept_and_named(tmp_path, capsys):
    for run in range(3):
        with Logger(tmp_path) as logger:
            logger.log_tabular("Run", run)
            logger.dump_tabular()
    out = capsys.readouterr().out
    path = str(tmp_path / "progress.txt")
    assert f"{tmp_path} exists already" in out
    assert f"the older table is now {path}.1\n" in out and f"{path}.2\n" in out
    contents = {name: (tmp_path / name).read_text() for name in os.listdir(tmp_path)}
    assert contents == {
        "progress.txt.1": "Run\n0\n",
        "progress.txt.2": "Run\n1\n",
        "progress.txt": "Run\n2\n",
    }


def test_L04_empty_table_is_reused(tmp_path):
    Logger(tmp_path).close()
    Logger(tmp_path).close()
    assert os.listdir(tmp_path) == ["progress.txt"]


def test_L15_close_and_context_manager(tmp_path):
    with Logger(tmp_path) as logger:
        assert not logger.output_file.closed
    assert logger.output_file.closed
    logger.close()  # again, harmless


def test_L15_file_is_closed_when_the_logger_is_gone(tmp_path):
    logger = EpochLogger(tmp_path)
    file, gone = logger.output_file, weakref.ref(logger)
    del logger
    gc.collect()
    assert gone() is None and file.closed


def test_L17_import_is_light(tmp_path):
    code = (
        "import sys, spinup.utils.logx, spinup.utils.run_utils, spinup.utils.serialization_utils\n"
        "logger = spinup.utils.logx.EpochLogger()\n"
        "logger.store(X=1); logger.log_tabular('X'); logger.dump_tabular(); logger.save_config({})\n"
        "heavy = ['torch', 'tensorflow', 'jax', 'mpi4py', 'joblib', 'matplotlib', 'gymnasium']\n"
        "print('loaded:', [name for name in heavy if name in sys.modules])"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    out = subprocess.check_output([sys.executable, "-c", code], text=True, env=env)
    assert out.splitlines()[-1] == "loaded: []"


def test_unwritable_directory_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/run' cannot be made: Not a directory"):
        Logger(tmp_path / "file" / "run")


# --- the table ----------------------------------------------------------------------------------------------


def test_table_on_terminal_and_in_file(tmp_path, capsys):
    logger = Logger(tmp_path)
    capsys.readouterr()
    for epoch in range(2):
        logger.log_tabular("AverageTest", 4.5)
        logger.log_tabular("StdTest", 2.8722813232690143)
        if epoch == 0:
            logger.log_tabular("Note", "ok")
        logger.dump_tabular()
    rule = "-" * 37
    first = [
        rule,
        "|     AverageTest |             4.5 |",
        "|         StdTest |            2.87 |",
        "|            Note |              ok |",
        rule,
    ]
    second = [*first[:3], "|            Note |                 |", rule]
    assert capsys.readouterr().out.splitlines() == first + second
    assert table(logger) == [
        ["AverageTest", "StdTest", "Note"],
        ["4.5", "2.8722813232690143", "ok"],
        ["4.5", "2.8722813232690143", ""],
    ]


def test_table_grows_with_long_names(logger, capsys):
    logger.log_tabular("A" * 20, True)
    logger.log_tabular("B", 123456)
    capsys.readouterr()
    logger.dump_tabular()
    assert capsys.readouterr().out.splitlines() == [
        "-" * 42,
        f"| {'A' * 20} |               1 |",
        f"| {'B':>20} |        1.23e+05 |",
        "-" * 42,
    ]


def test_new_and_repeated_columns_are_refused(logger):
    logger.log_tabular("A", 1)
    with pytest.raises(AssertionError, match=r"'A'.*dump_tabular"):
        logger.log_tabular("A", 2)
    logger.dump_tabular()
    with pytest.raises(AssertionError, match="'B'"):
        logger.log_tabular("B", 1)


def test_L05_empty_dump_is_ignored(logger, capsys):
    capsys.readouterr()
    logger.dump_tabular()
    assert logger.first_row
    logger.log_tabular("A", 1)
    logger.dump_tabular()
    logger.dump_tabular()
    assert table(logger) == [["A"], ["1"]]
    assert capsys.readouterr().out.count("A") == 1


@pytest.mark.parametrize(
    "value, written",
    [
        (3, "3"),
        (True, "True"),
        (0.1, "0.1"),
        (1 / 3, repr(1 / 3)),
        (math.nan, "nan"),
        (np.float32(0.1), repr(float(np.float32(0.1)))),
        (np.float64(0.1), "0.1"),
        (np.int64(3), "3"),
        (np.array([[2.5]]), "2.5"),
        (torch.tensor(2.5, requires_grad=True), "2.5"),
        (torch.tensor([3]), "3"),
        (None, "None"),
        ("two\twords\r\nand more", "two words  and more"),
    ],
    ids=repr,
)
def test_L16_values_are_plain_numbers_or_one_line(tmp_path, value, written):
    with Logger(tmp_path) as logger:
        logger.log_tabular("A\tB", value)
        logger.dump_tabular()
        assert table(logger) == [["A B"], [written]]


@pytest.mark.parametrize("value", [np.zeros(2), torch.zeros(2)], ids=type)
def test_L16_arrays_are_refused_at_once(logger, value):
    with pytest.raises(TypeError, match="Column 'A' needs a single value"):
        logger.log_tabular("A", value)


def test_files_are_utf8_with_unix_line_ends(logger):
    logger.log_tabular("Erträge", "größer")
    logger.dump_tabular()
    with open(logger.output_file.name, "rb") as file:
        assert file.read() == "Erträge\ngrößer\n".encode()


def test_quiet(tmp_path, capsys):
    with EpochLogger(tmp_path / "run", quiet=True) as logger:
        logger.save_config({"a": 1})
        logger.log_tabular("A", 1)
        logger.dump_tabular()
        assert capsys.readouterr().out == ""
        assert table(logger) == [["A"], ["1"]]
        logger.log("still said")
    assert capsys.readouterr().out == "still said\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_full_disk_stops_the_run(tmp_path):
    logger = Logger(tmp_path)
    logger.close()
    logger.output_file = open("/dev/full", "w")  # noqa: SIM115
    logger.log_tabular("A", 1)
    with pytest.raises(OSError, match="/dev/full"):
        logger.dump_tabular()
    with pytest.raises(OSError):
        logger.close()


# --- configuration ------------------------------------------------------------------------------------------


def test_config_layout(logger, capsys):
    capsys.readouterr()
    logger.save_config({"a": (1, 2), "f": len})
    text = '{\n    "a":\t[\n        1,\n        2\n    ],\n    "exp_name":\t"demo",\n    "f":\t"len"\n}'
    with open(os.path.join(logger.output_dir, "config.json"), encoding="utf-8") as file:
        assert file.read() == text
    assert capsys.readouterr().out == f"Saving config:\n\n{text}\n"


def test_L06_config_of_the_caller_is_left_alone(logger):
    config = {"a": 1}
    logger.save_config(config)
    assert config == {"a": 1}


def saved_config(logger):
    with open(os.path.join(logger.output_dir, "config.json"), encoding="utf-8") as file:
        return json.load(file)


def test_A15_save_config_of_locals_leaves_the_logger_out(tmp_path):
    def algorithm(env_fn=lambda: None, ac_kwargs=dict(sizes=(64,)), logger_kwargs=dict()):
        logger = EpochLogger(**logger_kwargs)
        logger.save_config(locals())
        return saved_config(logger)

    logger_kwargs = {"output_dir": str(tmp_path), "exp_name": "demo"}
    config = algorithm(logger_kwargs=logger_kwargs)
    assert config.pop("env_fn").endswith("<lambda>>")
    assert config == {"ac_kwargs": {"sizes": [64]}, "exp_name": "demo", "logger_kwargs": logger_kwargs}


def test_save_config_of_globals_and_self(logger):
    class Agent:
        def __init__(self):
            self.me, self.logger = self, logger
            self.buffer = np.zeros((1000, 1000))
            logger.save_config({**locals(), **globals()})

    start = time.perf_counter()
    Agent()
    assert time.perf_counter() - start < 1
    config = saved_config(logger)
    assert config["np"] == "numpy" and config["EpochLogger"] == "EpochLogger"
    assert next(iter(config["self"].values()))["me"] == "<cycle: Agent>"


def test_save_config_accepts_anything(logger):
    logger.save_config([1, len])
    assert saved_config(logger) == [1, "len"]


# --- saving -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("itr, suffix", [(None, ""), (3, "3"), (np.int64(0), "0")])
def test_save_state(logger, itr, suffix):
    logger.setup_pytorch_saver(torch.nn.Linear(2, 1))
    logger.save_state({"env": [1, 2]}, itr)
    directory = logger.output_dir
    assert sorted(os.listdir(directory)) == ["progress.txt", "pyt_save", f"vars{suffix}.pkl"]
    assert os.listdir(os.path.join(directory, "pyt_save")) == [f"model{suffix}.pt"]
    assert joblib.load(os.path.join(directory, f"vars{suffix}.pkl")) == {"env": [1, 2]}
    model = torch.load(os.path.join(directory, "pyt_save", f"model{suffix}.pt"), weights_only=False)
    assert torch.equal(model.weight, logger.pytorch_saver_elements.weight)


def test_L07_state_that_cannot_be_pickled_is_named_and_leaves_no_file(logger, capsys):
    logger.save_state({"env": 1})
    logger.setup_pytorch_saver(torch.nn.Linear(2, 1))
    logger.save_state({"big": np.zeros(1000), "env": (i for i in range(3))})
    assert "vars.pkl was not saved. TypeError: cannot pickle 'generator' object" in capsys.readouterr().out
    directory = logger.output_dir
    assert sorted(os.listdir(directory)) == ["progress.txt", "pyt_save", "vars.pkl"]
    assert joblib.load(os.path.join(directory, "vars.pkl")) == {"env": 1}


def test_L07_interrupt_while_saving_passes(logger):
    class Interrupted:
        def __reduce__(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        logger.save_state({"env": Interrupted()})
    assert os.listdir(logger.output_dir) == ["progress.txt"]


class Unpicklable(torch.nn.Linear):
    def __reduce__(self):
        raise RuntimeError("not today")


def test_failed_model_save_is_loud_and_keeps_the_old_model(logger):
    logger.setup_pytorch_saver(torch.nn.Linear(2, 1))
    logger.save_state({})
    logger.setup_pytorch_saver(Unpicklable(2, 1))
    with pytest.raises(RuntimeError, match="not today"):
        logger.save_state({})
    directory = os.path.join(logger.output_dir, "pyt_save")
    assert os.listdir(directory) == ["model.pt"]
    torch.load(os.path.join(directory, "model.pt"), weights_only=False)


@pytest.mark.parametrize("framework", ["tf", "pytorch"])
def test_saving_needs_a_saver(logger, framework):
    with pytest.raises(AssertionError, match=f"setup_{framework}_saver"):
        getattr(logger, f"_{framework}_simple_save")()


def test_setup_tf_saver(logger):
    class Tensor:
        name = "Placeholder:0"

    tensor = Tensor()
    logger.setup_tf_saver("session", {"x": tensor}, {"pi": tensor})
    assert logger.tf_saver_elements == {
        "session": "session",
        "inputs": {"x": tensor},
        "outputs": {"pi": tensor},
    }
    assert logger.tf_saver_info == {"inputs": {"x": "Placeholder:0"}, "outputs": {"pi": "Placeholder:0"}}


# --- statistics ---------------------------------------------------------------------------------------------


def test_epoch_statistics(logger):
    for test in range(10):
        logger.store(Test=test, Other=test)
    assert logger.epoch_dict["Test"] == list(range(10))
    mean, std = logger.get_stats("Test")
    assert (mean, std) == (4.5, pytest.approx(np.std(np.arange(10))))
    assert len(logger.epoch_dict["Test"]) == 10
    logger.log_tabular("Epoch", 1)
    logger.log_tabular("Test", with_min_and_max=True)
    logger.log_tabular("Other", average_only=True)
    assert logger.log_headers == ["Epoch", "AverageTest", "StdTest", "MaxTest", "MinTest", "Other"]
    assert list(logger.log_current_row.values()) == [1, 4.5, pytest.approx(std), 9, 0, 4.5]
    assert logger.epoch_dict == {"Test": [], "Other": [], "Epoch": []}


@pytest.mark.parametrize(
    "values",
    [
        [1, 2.0, np.float32(3), True],
        [np.array(1.0), np.array(2), 3, 1],
        [np.array([1.0, 2.0], dtype=np.float32), np.array([3, 1])],
        [np.ones((1, 1)), np.array([[2.0], [3.0]]), 1],
        [torch.tensor(1.0, requires_grad=True), torch.tensor([2.0, 3.0]), 1],
        [[1, 2], [3, 1]],
    ],
    ids=["scalars", "arrays without axes", "arrays", "matrices", "tensors", "lists"],
)
def test_every_element_of_what_is_stored_counts(logger, values):
    for value in values:
        logger.store(X=value)
    logger.log_tabular("X", with_min_and_max=True)
    expected = [np.mean([1, 2, 3, 1]), np.std([1, 2, 3, 1]), 3, 1]
    assert list(logger.log_current_row.values()) == pytest.approx(expected, rel=1e-12)


def test_statistics_are_in_double_precision(logger):
    logger.store(X=np.array([1e8, 1e8 + 8], dtype=np.float32))
    assert logger.get_stats("X") == (1e8 + 4, 4.0)


@pytest.mark.parametrize("known", ["stored before", "registered"])
def test_L09_empty_statistics_log_nan(logger, known, recwarn):
    if known == "registered":
        logger.register("X")
        assert logger.epoch_dict == {"X": []}
    else:
        logger.store(X=1)
        logger.log_tabular("X", with_min_and_max=True)
        logger.dump_tabular()
    logger.log_tabular("X", with_min_and_max=True)
    logger.dump_tabular()
    assert table(logger)[0] == ["AverageX", "StdX", "MaxX", "MinX"]
    assert table(logger)[-1] == ["nan"] * 4
    assert not recwarn


def test_register_keeps_what_is_stored(logger):
    logger.store(X=1)
    logger.register("X", "Y")
    assert logger.epoch_dict == {"X": [1], "Y": []}


@pytest.mark.parametrize("method", ["log_tabular", "get_stats"])
def test_L09_unknown_key_says_what_to_do(logger, method):
    with pytest.raises(KeyError, match=r"'X'.*logger\.store\(X=\.\.\.\).*logger\.register\('X'\).*value"):
        getattr(logger, method)("X")
    assert logger.log_headers == []


def test_L10_collective_calls_are_documented():
    assert "every rank must call them" in " ".join(EpochLogger.__doc__.split())


def test_logger_as_default_argument(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def train(logger=EpochLogger()):
        return logger

    train().store(X=1)
    assert train().epoch_dict == {"X": [1]}
