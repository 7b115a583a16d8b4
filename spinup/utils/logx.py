"""Logger: a table of results on the terminal and in a file, the configuration, and saved models.

A run directory looks like this::

    config.json        arguments and name of the experiment
    progress.txt       tab-separated table: a header, then one row per epoch
    vars.pkl           whatever was given to save_state
    pyt_save/model.pt  the model of a PyTorch run
    jax_save/          the model of a JAX run
    tf1_save/          the model of a TensorFlow run

Under MPI, only rank 0 prints and writes.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TextIO

import numpy as np

from spinup.training.errors import UserError
from spinup.utils.mpi_tools import as_numpy, mpi_statistics_scalar, mpi_sum, proc_id
from spinup.utils.serialization_utils import atomic_write, convert_json

if TYPE_CHECKING:
    from spinup.training.models import Model

color2num = {
    "gray": 30,
    "red": 31,
    "green": 32,
    "yellow": 33,
    "blue": 34,
    "magenta": 35,
    "cyan": 36,
    "white": 37,
    "crimson": 38,
}


def colorize(string: str, color: str, bold: bool = False, highlight: bool = False) -> str:
    """Wrap text in the ANSI codes of a colour: of the letters, or of their background with ``highlight``."""
    codes = [color2num[color] + (10 if highlight else 0)]
    if color == "crimson":
        codes += [5, 161]  # 38 and 48 announce a colour of the 256-colour palette
    if bold:
        codes.append(1)
    return f"\x1b[{';'.join(map(str, codes))}m{string}\x1b[0m"


def paint(string: str, color: str, bold: bool = False) -> str:
    """``colorize`` for the terminal only: plain text if stdout is redirected to a file.

    The environment variables NO_COLOR and FORCE_COLOR decide otherwise, as in other programs.
    """
    if os.environ.get("NO_COLOR"):
        return string
    if os.environ.get("FORCE_COLOR") or (hasattr(sys.stdout, "isatty") and sys.stdout.isatty()):
        return colorize(string, color, bold=bold)
    return string


def restore_tf_graph(sess: Any, fpath: str) -> dict[str, Any]:
    """Load the model that ``Logger.save_state`` wrote in the directory ``fpath`` into a TensorFlow session.

    Returns:
        The saved tensors by name, such as ``x`` (observation) and ``pi`` (action).
    """
    import tensorflow.compat.v1 as tf

    saved_model = tf.saved_model
    meta_graph = saved_model.loader.load(sess, [saved_model.tag_constants.SERVING], fpath)
    # The signature has the same names as model_info.pkl, and reading it cannot run code from the file.
    signature = meta_graph.signature_def[saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY]
    infos = {**signature.inputs, **signature.outputs}
    return {key: sess.graph.get_tensor_by_name(info.name) for key, info in infos.items()}


class Logger:
    """Records a run: its configuration, a table with one row per epoch, and its models.

    Usage::

        logger = Logger(output_dir="data/demo", exp_name="demo")
        logger.save_config({"lr": 1e-3})
        for epoch in range(10):
            ...
            logger.log_tabular("Epoch", epoch)
            logger.log_tabular("Loss", loss)
            logger.dump_tabular()
        logger.close()              # or use it in a `with` statement

    Args:
        output_dir: Directory for all files; a new temporary one if not given.
        output_fname: Name of the table. An older table of that name is renamed, not overwritten.
        exp_name: Name of the experiment. The plotter averages over runs that have the same one.
        quiet: Print neither tables nor the configuration; messages and warnings are printed anyway.

    Attributes:
        output_dir, output_file: Directory and open table; None on all MPI ranks but 0.
        log_headers: Names of the columns, fixed by the first row.
        log_current_row: Values of the row in progress.
    """

    tf_saver_elements: dict[str, Any]
    tf_saver_info: dict[str, dict[str, str]]
    pytorch_saver_elements: Any

    def __init__(
        self,
        output_dir: str | os.PathLike[str] | None = None,
        output_fname: str = "progress.txt",
        exp_name: str | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        self.output_dir: str | None = None
        self.output_file: TextIO | None = None
        self.quiet = quiet
        self.first_row = True
        self.log_headers: list[str] = []
        self.log_current_row: dict[str, Any] = {}
        self.exp_name = exp_name
        if proc_id() == 0:
            self.output_dir = self._make_directory(output_dir)
            self.output_file = self._open_table(os.path.join(self.output_dir, output_fname))

    def _make_directory(self, output_dir: str | os.PathLike[str] | None) -> str:
        if not output_dir:
            return _temporary_directory()
        output_dir = os.fspath(output_dir)
        if os.path.isdir(output_dir):
            self.log(f"Warning: {output_dir} exists already. Output goes there anyway.", color="yellow")
        try:
            os.makedirs(output_dir, exist_ok=True)
        except OSError as error:
            raise UserError(f"output_dir={output_dir!r} cannot be made: {error.strerror}") from None
        return output_dir

    def _open_table(self, path: str) -> TextIO:
        if os.path.isfile(path) and os.path.getsize(path) > 0:
            number = 1
            while os.path.exists(f"{path}.{number}"):
                number += 1
            os.rename(path, f"{path}.{number}")
            self.log(f"Warning: the older table is now {path}.{number}", color="yellow")
        try:
            file = open(path, "w", encoding="utf-8", newline="\n")  # noqa: SIM115, it stays open
        except OSError as error:
            raise UserError(f"{path!r} cannot be written: {error.strerror}") from None
        weakref.finalize(self, file.close)  # when the logger is no longer used, at the latest on exit
        if not self.quiet:
            self.log(f"Logging data to {path}")
        return file

    def close(self) -> None:
        """Close the table. Nothing can be written to it afterwards."""
        if self.output_file is not None:
            self.output_file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def log(self, msg: Any, color: str = "green") -> None:
        """Print a message, in colour if stdout is a terminal. It does not go to any file."""
        if proc_id() == 0:
            print(paint(str(msg), color, bold=True), flush=True)

    def log_tabular(self, key: str, val: Any) -> None:
        """Put one value into the row in progress.

        The first row fixes the columns. Later rows may lack some, but not have others. Values with a single
        number in them (of NumPy, PyTorch, JAX, ...) are recorded as that number.
        """
        if self.first_row and key not in self.log_headers:
            self.log_headers.append(key)
        if key not in self.log_headers:
            raise AssertionError(f"Column {key!r} is new. The first row did not have it.")
        if key in self.log_current_row:
            raise AssertionError(f"Column {key!r} has a value already. Was dump_tabular() forgotten?")
        try:
            self.log_current_row[key] = _plain(val)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"Column {key!r} needs a single value: {error}") from error

    def dump_tabular(self) -> None:
        """Print the row in progress, write it to the table, begin the next one. An empty row is ignored."""
        if not self.log_current_row:
            return
        if self.output_file is not None:
            if not self.quiet:
                self._print_row()
            self._write_row(self.output_file)
        self.log_current_row = {}
        self.first_row = False

    def _print_row(self) -> None:
        width = max(15, max(map(len, self.log_headers)))
        rule = "-" * (22 + width)
        print(rule)
        for key in self.log_headers:
            val = self.log_current_row.get(key, "")
            text = f"{val:8.3g}" if isinstance(val, (int, float)) else val
            print(f"| {key:>{width}} | {text:>15} |")
        print(rule, flush=True)

    def _write_row(self, file: TextIO) -> None:
        lines = [self.log_headers] if self.first_row else []
        lines.append([str(self.log_current_row.get(key, "")) for key in self.log_headers])
        try:
            file.write("".join("\t".join(map(_one_line, cells)) + "\n" for cells in lines))
            file.flush()
        except OSError as error:
            raise OSError(error.errno, f"cannot write: {error.strerror}", file.name) from error

    def save_config(self, config: Any) -> None:
        """Print a configuration and write it to ``config.json``.

        Anything can be in it; see ``convert_json`` for how it is written. ``save_config(locals())`` at the
        start of a function records its arguments: the logger itself and names like ``__doc__`` are left out.
        """
        if self.output_dir is None:
            return
        if isinstance(config, dict):
            config = {k: v for k, v in config.items() if v is not self and not str(k).startswith("__")}
        config = convert_json(config)
        if self.exp_name is not None and isinstance(config, dict):
            config["exp_name"] = self.exp_name
        text = json.dumps(config, separators=(",", ":\t"), indent=4, sort_keys=True)
        if not self.quiet:
            print(paint("Saving config:\n", "cyan", bold=True))
            print(text, flush=True)
        with atomic_write(os.path.join(self.output_dir, "config.json")) as file:
            file.write(text.encode())

    def save_state(self, state_dict: Any, itr: int | None = None) -> None:
        """Save a state, and the model if a saver was set up.

        The state goes to ``vars.pkl``. One that cannot be pickled, like many environments, is reported in red
        and is not an error. Each file replaces its predecessor only when it is complete.

        Args:
            state_dict: Usually ``{'env': env}``.
            itr: With a number, the files get it in their names, so that they are all kept.
        """
        if self.output_dir is None:
            return
        name = f"vars{_suffix(itr)}.pkl"
        try:
            import joblib

            with atomic_write(os.path.join(self.output_dir, name)) as file:
                joblib.dump(state_dict, file)
        except Exception as error:
            self.log(f"Warning: {name} was not saved. {type(error).__name__}: {error}", color="red")
        if hasattr(self, "tf_saver_elements"):
            self._tf_simple_save(itr)
        if hasattr(self, "pytorch_saver_elements"):
            self._pytorch_simple_save(itr)
        if hasattr(self, "jax_saver_elements"):
            self._jax_simple_save(itr)

    def setup_tf_saver(self, sess: Any, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Tell ``save_state`` to save a TensorFlow graph.

        Args:
            sess: Session that holds the values of the variables.
            inputs: Placeholders by name.
            outputs: Results by name.
        """
        self.tf_saver_elements = {"session": sess, "inputs": inputs, "outputs": outputs}
        self.tf_saver_info = {
            "inputs": {key: tensor.name for key, tensor in inputs.items()},
            "outputs": {key: tensor.name for key, tensor in outputs.items()},
        }

    def _tf_simple_save(self, itr: int | None = None) -> None:
        """Write ``tf1_save/``."""
        if self.output_dir is None:
            return
        if not hasattr(self, "tf_saver_elements"):
            raise AssertionError("Call setup_tf_saver() first.")
        import joblib
        import tensorflow.compat.v1 as tf

        path = os.path.join(self.output_dir, f"tf1_save{_suffix(itr)}")
        # simple_save wants a new directory, and the old one must stay until that is complete.
        fresh = os.path.join(self.output_dir, f".partial-{os.getpid()}")
        shutil.rmtree(fresh, ignore_errors=True)
        with self.tf_saver_elements["session"].graph.as_default():
            tf.saved_model.simple_save(export_dir=fresh, **self.tf_saver_elements)
        joblib.dump(self.tf_saver_info, os.path.join(fresh, "model_info.pkl"))
        shutil.rmtree(path, ignore_errors=True)
        os.rename(fresh, path)

    def setup_pytorch_saver(self, what_to_save: Any) -> None:
        """Tell ``save_state`` to save a PyTorch module, or any object with modules that can be pickled."""
        self.pytorch_saver_elements = what_to_save

    def _pytorch_simple_save(self, itr: int | None = None) -> None:
        """Write ``pyt_save/model.pt``: the whole object, which names its classes by their import paths."""
        if self.output_dir is None:
            return
        if not hasattr(self, "pytorch_saver_elements"):
            raise AssertionError("Call setup_pytorch_saver() first.")
        import torch

        directory = os.path.join(self.output_dir, "pyt_save")
        os.makedirs(directory, exist_ok=True)
        path = os.path.join(directory, f"model{_suffix(itr)}.pt")
        with atomic_write(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.save(self.pytorch_saver_elements, file)

    def setup_jax_saver(self, what_to_save: Callable[[], Model]) -> None:
        """Tell ``save_state`` to save a model as data: what the function returns then."""
        self.jax_saver_elements = what_to_save

    def _jax_simple_save(self, itr: int | None = None) -> None:
        """Write ``jax_save/model.safetensors``."""
        if self.output_dir is None:
            return
        if not hasattr(self, "jax_saver_elements"):
            raise AssertionError("Call setup_jax_saver() first.")
        from spinup.training.models import write_model

        directory = os.path.join(self.output_dir, "jax_save")
        os.makedirs(directory, exist_ok=True)
        with atomic_write(os.path.join(directory, f"model{_suffix(itr)}.safetensors")) as file:
            write_model(file, self.jax_saver_elements())


class EpochLogger(Logger):
    """A logger that computes statistics of what was stored during an epoch, over all MPI ranks.

    Usage::

        logger = EpochLogger(**logger_kwargs)
        for epoch in range(10):
            for test in range(10):
                logger.store(Test=test)
            logger.log_tabular("Epoch", epoch)
            logger.log_tabular("Test", with_min_and_max=True)
            logger.dump_tabular()

    This gives the columns ``Epoch``, ``AverageTest``, ``StdTest``, ``MaxTest`` and ``MinTest``.

    Under MPI, ``log_tabular`` without a value and ``get_stats`` are collective: every rank must call them for
    the same keys in the same order, or the ranks wait for each other for ever. Some may have stored nothing.

    Attributes:
        epoch_dict: What was stored so far in this epoch, as one list for each key.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.epoch_dict: dict[str, list[Any]] = {}

    def register(self, *keys: str) -> None:
        """Declare keys that will be logged although nothing may have been stored under them: NaN then."""
        for key in keys:
            self.epoch_dict.setdefault(key, [])

    def store(self, **kwargs: Any) -> None:
        """Remember one value for each key: a number, or an array or tensor of which every element counts."""
        for key, value in kwargs.items():
            if key in self.epoch_dict:
                self.epoch_dict[key].append(value)
            else:
                self.epoch_dict[key] = [value]

    def log_tabular(
        self, key: str, val: Any = None, with_min_and_max: bool = False, average_only: bool = False
    ) -> None:
        """Put a value, or the statistics of all stored values, into the row in progress.

        The columns are ``Average<key>`` and ``Std<key>``. Afterwards nothing is stored under the key.

        Args:
            key: Name of the column, or of the stored values.
            val: Value to log. Without it, or with None: the statistics. They are NaN if nothing is stored in
                this epoch; a key that was never stored or registered on any rank is a KeyError.
            with_min_and_max: Add the columns ``Max<key>`` and ``Min<key>``.
            average_only: Log the mean only, as column ``<key>``.
        """
        if val is not None:
            super().log_tabular(key, val)
        else:
            mean, std, *extremes = self._statistics(key, with_min_and_max)
            super().log_tabular(key if average_only else f"Average{key}", mean)
            if not average_only:
                super().log_tabular(f"Std{key}", std)
            if with_min_and_max:
                low, high = extremes
                super().log_tabular(f"Max{key}", high)
                super().log_tabular(f"Min{key}", low)
        self.epoch_dict[key] = []

    def get_stats(self, key: str) -> tuple[float, float]:
        """Mean and standard deviation of the stored values, which stay stored."""
        mean, std = self._statistics(key)
        return mean, std

    def _statistics(self, key: str, with_min_and_max: bool = False) -> tuple[float, ...]:
        # Asked of all ranks, so that either all of them raise or none does.
        if not mpi_sum(key in self.epoch_dict):
            raise KeyError(
                f"nothing was ever stored under {key!r}: call logger.store({key}=...) before log_tabular, "
                f"or logger.register({key!r}) if it may stay empty, or give log_tabular a value"
            )
        return mpi_statistics_scalar(_flatten(self.epoch_dict.get(key, [])), with_min_and_max)


def _temporary_directory() -> str:
    root = os.path.join(tempfile.gettempdir(), "experiments")
    os.makedirs(root, exist_ok=True)
    if not os.access(root, os.W_OK):  # it belongs to another user of the machine
        root = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix=time.strftime("%Y-%m-%d_%H-%M-%S_"), dir=root)


def _suffix(itr: int | None) -> str:
    return "" if itr is None else str(int(itr))


def _plain(val: Any) -> bool | int | float | str:
    """The number in an array or tensor with one element, or any other value as text."""
    if hasattr(val, "item"):  # NumPy, PyTorch and JAX: keeps integers whole
        val = val.item()
    if isinstance(val, (bool, int, float)):
        return val
    return float(val) if hasattr(val, "__float__") else str(val)


def _one_line(cell: str) -> str:
    """Text without the characters that separate columns and rows."""
    return cell.replace("\t", " ").replace("\r", " ").replace("\n", " ")


def _flatten(values: list[Any]) -> np.ndarray:
    """All numbers in a list of numbers, arrays and tensors, as one flat array in double precision."""
    if all(isinstance(v, (int, float, np.generic)) for v in values):
        return np.array(values, dtype=np.float64)  # the usual case, and the fast one
    return np.concatenate([as_numpy(v).ravel() for v in values], dtype=np.float64)
