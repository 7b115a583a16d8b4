"""Any environment behind one small interface: n of them, stepped in this process, arrays in and out.

    envs = Envs(env_fn, n, rng)
    obs = envs.reset()                                   # (n, *obs_shape) float32
    obs2, rew, terminated, truncated = envs.step(act)    # obs2 is the true next observation, never a reset one
    obs = envs.restart(done)                             # begin new episodes where `done`, keep obs2 elsewhere

Understands Gymnasium environments, objects with the old four-value `step`, and EnvPool's vectors. Observations of
`Discrete`, `Dict` and `Tuple` spaces are flattened by Gymnasium's own tools (Discrete becomes one-hot).
"""

import importlib
import inspect
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from spinup.training.errors import NonFiniteError, UserError, one_line
from spinup.training.seeding import draw_seed

EnvFn = Callable[[], Any]


# -- Making environments by name --------------------------------------------------------------------------------


def env_fn_from_name(env_name: str, **env_kwargs: Any) -> EnvFn:
    """A function that makes `env_name`: a registered id, `module:Id`, or `envpool:Id` for a vector of them."""
    if env_name.startswith("envpool:"):
        return EnvPoolFn(env_name.removeprefix("envpool:"), env_kwargs)
    module, _, env_id = env_name.rpartition(":")
    try:
        if ":" in env_name:
            if not all(part.isidentifier() for part in module.split(".")):
                raise UserError(f"environment {env_name!r}: {module!r} is no name of a module, as in module:Id")
            importlib.import_module(module)
        gym.spec(env_id)
    except ImportError as error:
        raise UserError(f"environment {env_name!r}: cannot import {module!r} ({one_line(error)})") from None
    except gym.error.Error:
        raise UserError(f"unknown environment {one_line(env_name)!r}{_nearest_env(env_id)}") from None
    return GymnasiumFn(env_name, env_kwargs)


class GymnasiumFn:
    """Makes one environment by name. The configuration of a run shows it by that name."""

    def __init__(self, env_name: str, env_kwargs: dict[str, Any]):
        self.env_name, self.env_kwargs = env_name, env_kwargs
        shown = "".join(f", {key}={value!r}" for key, value in env_kwargs.items())
        self.__name__ = env_name + shown

    def __call__(self) -> gym.Env:
        try:
            return gym.make(self.env_name, **self.env_kwargs)
        except (ImportError, gym.error.Error, TypeError) as error:
            hint = _nearest_env(self.env_name.rpartition(":")[2])
            raise UserError(f"environment {self.env_name!r} cannot be made{hint} ({one_line(error)})") from error


def _nearest_env(env_id: str) -> str:
    """The newest version of the same environment, or else the most similar name."""
    base = env_id.rpartition("/")[2].partition("-v")[0]
    versions = [spec for spec in gym.registry.values() if spec.name == base and spec.version is not None]
    if versions:
        newest = max(versions, key=lambda spec: spec.version or 0).id
        return "" if newest == env_id else f": did you mean {newest!r}?"
    near = get_close_matches(env_id, gym.registry, n=1, cutoff=0.6)
    return f": did you mean {near[0]!r}?" if near else ": `gymnasium.pprint_registry()` lists what there is"


class EnvPoolFn:
    """Makes a vector of EnvPool environments; `Envs` calls it with the number wanted."""

    def __init__(self, env_id: str, env_kwargs: dict[str, Any]):
        self.env_id, self.env_kwargs = env_id, env_kwargs
        try:
            envpool = importlib.import_module("envpool")
        except ModuleNotFoundError:
            raise UserError(f"'envpool:{env_id}' needs EnvPool: pip install 'spinup[envpool]'") from None
        if env_id not in envpool.list_all_envs():
            near = get_close_matches(env_id, envpool.list_all_envs(), n=1, cutoff=0.5)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise UserError(f"unknown EnvPool environment {env_id!r}{hint}")
        self.__name__ = env_id

    def __call__(self, num_envs: int = 1, seed: int = 0) -> Any:
        envpool = importlib.import_module("envpool")
        return envpool.make_gymnasium(self.env_id, num_envs=num_envs, seed=seed, **self.env_kwargs)


# -- Spaces -----------------------------------------------------------------------------------------------------


def as_gymnasium_space(space: Any, what: str) -> spaces.Space:
    """Spaces of the old `gym` package have the same fields; anything else is refused."""
    if isinstance(space, spaces.Space):
        return space
    match type(space).__name__:
        case "Box":
            return spaces.Box(space.low, space.high, dtype=space.dtype)
        case "Discrete":
            return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
        case "MultiDiscrete":
            return spaces.MultiDiscrete(space.nvec)
        case "MultiBinary":
            return spaces.MultiBinary(space.n)
        case "Dict":
            return spaces.Dict({key: as_gymnasium_space(part, what) for key, part in space.spaces.items()})
        case "Tuple":
            return spaces.Tuple([as_gymnasium_space(part, what) for part in space.spaces])
    raise UserError(
        f"{what}: {one_line(repr(space))} is not a space of Gymnasium; give the environment a gymnasium.spaces.Space"
    )


def network_observation_space(space: spaces.Space, flatten_boxes: bool) -> spaces.Box:
    """The Box that a network sees for observations of `space`."""
    if isinstance(space, spaces.Box) and not (flatten_boxes and len(space.shape) != 1):
        return space
    try:
        flat = spaces.flatten_space(space)
    except NotImplementedError:
        flat = None
    if not isinstance(flat, spaces.Box):
        raise UserError(
            f"observation space {one_line(space)} has no fixed size: wrap the environment so that it gives a Box,"
            " Discrete, Dict or Tuple"
        )
    return flat


def check_action_space(space: spaces.Space, continuous_only: bool) -> None:
    """Refuse what the algorithm family cannot act in."""
    if continuous_only:
        if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
            raise UserError(
                f"action space {one_line(space)}: DDPG, TD3 and SAC act in a Box of real numbers; use PPO, VPG or TRPO"
                " here"
            )
        if len(space.shape) != 1:
            raise UserError(
                f"action space {one_line(space)}: needs one dimension; wrap the environment to flatten its actions"
            )
        if not space.is_bounded("both"):
            raise UserError(
                f"action space {one_line(space)}: DDPG, TD3 and SAC need finite bounds in every dimension; wrap the"
                " environment (gymnasium.wrappers.RescaleAction) or use PPO, VPG or TRPO"
            )
    elif isinstance(space, spaces.Box):
        if len(space.shape) != 1:
            raise UserError(
                f"action space {one_line(space)}: needs one dimension; wrap the environment to flatten its actions"
            )
    elif isinstance(space, spaces.MultiDiscrete):
        if space.nvec.ndim != 1:
            raise UserError(f"action space {one_line(space)}: needs one dimension of choices")
    elif not isinstance(space, spaces.Discrete):
        raise UserError(
            f"action space {one_line(space)} is not supported: VPG, TRPO and PPO take Box, Discrete or MultiDiscrete"
        )


def action_shape(space: spaces.Space) -> tuple[int, ...]:
    """The shape of one action in a buffer: () for Discrete."""
    return space.shape or ()


def _to_env_actions(space: spaces.Space) -> Callable[[np.ndarray], Any]:
    """What turns the policy's actions (n, ...) into what the environments take."""
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return lambda act: (act + start).tolist() if start else act.tolist()
    if isinstance(space, spaces.MultiDiscrete):
        return lambda act: (act + space.start).astype(space.dtype)
    low, high, dtype = space.low, space.high, space.dtype  # type: ignore[attr-defined]
    # The policy may leave the bounds, the environment must not see it. Buffers keep what the policy chose.
    if dtype != np.float32:  # clipped as doubles: -3.0 is 253 as an unsigned byte
        low, high = low.astype(np.float64), high.astype(np.float64)
    return lambda act: np.minimum(np.maximum(act, low), high).astype(dtype, copy=False)


def _to_network_obs(space: spaces.Space, shape: tuple[int, ...]) -> Callable[[Any], Any] | None:
    """What turns one raw observation into the network's, None if nothing needs to be done."""
    if isinstance(space, spaces.Box):
        return None if space.shape == shape else lambda obs: np.reshape(obs, shape)
    return partial(spaces.flatten, space)


# -- One vector or another --------------------------------------------------------------------------------------


def innermost(env: Any) -> Any:
    """The environment inside all wrappers."""
    return getattr(env, "unwrapped", env)


class _Single:
    """One environment, whatever its generation of the interface."""

    def __init__(self, env: Any):
        self.env = env
        self._takes_seed = _accepts_seed(env.reset)

    def reset(self, seed: int | None) -> Any:
        out = self.env.reset() if seed is None else self._seeded_reset(seed)
        return out[0] if isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], dict) else out

    def _seeded_reset(self, seed: int) -> Any:
        if self._takes_seed:
            try:
                return self.env.reset(seed=seed)
            except TypeError as error:  # a wrapper that passes on what the environment inside does not take
                if "unexpected keyword argument 'seed'" not in str(error):
                    raise
                self._takes_seed = False
        if hasattr(self.env, "seed"):
            self.env.seed(seed)
        return self.env.reset()

    def step(self, action: Any) -> tuple[Any, Any, Any, Any]:
        out = self.env.step(action)
        if len(out) == 5:
            obs, rew, terminated, truncated, _ = out
        else:  # the old interface: one `done`, and a time limit leaves a note in `info`
            obs, rew, done, info = out
            truncated = done and bool(info.get("TimeLimit.truncated", False))
            terminated = done and not truncated
        if isinstance(rew, np.ndarray):
            rew = rew.item()
        return obs, rew, terminated, truncated


def _accepts_seed(reset: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(reset).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.name == "seed" or p.kind is p.VAR_KEYWORD for p in parameters)


class _InProcess:
    """n environments, stepped one after the other in this process."""

    def __init__(self, envs: list[Any], seeds: list[int]):
        if len({id(innermost(env)) for env in envs}) < len(envs):
            raise UserError(
                f"num_envs={len(envs)}: env_fn returned the same environment twice; let it make a new one each call"
            )
        self.envs, self.seeds = envs, seeds
        self.singles = [_Single(env) for env in envs]
        self.observation_space, self.action_space = envs[0].observation_space, envs[0].action_space

    def step(self, actions: Any, put_obs: Any, rew: np.ndarray, terminated: np.ndarray, truncated: np.ndarray) -> None:
        for i, single in enumerate(self.singles):
            try:
                obs, rew[i], terminated[i], truncated[i] = single.step(actions[i])
            except Exception as error:
                error.add_note(f"raised by step() of environment {i} (seed {self.seeds[i]})")
                raise
            put_obs(i, obs)

    def reset(self, indices: list[int], seeds: Sequence[int] | None, put_obs: Any) -> None:
        for k, i in enumerate(indices):
            try:
                obs = self.singles[i].reset(seeds[k] if seeds else None)
            except Exception as error:
                error.add_note(f"raised by reset() of environment {i} (seed {self.seeds[i]})")
                raise
            put_obs(i, obs)


class _EnvPool:
    """A vector that steps itself, in threads of its own. Its seed was fixed when it was made."""

    def __init__(self, pool: Any):
        self.envs, self.pool = [pool], pool
        self.observation_space, self.action_space = pool.observation_space, pool.action_space

    def step(self, actions: Any, put_obs: Any, rew: np.ndarray, terminated: np.ndarray, truncated: np.ndarray) -> None:
        obs, rew[:], terminated[:], truncated[:], _ = self.pool.step(np.asarray(actions))
        for i, row in enumerate(obs):
            put_obs(i, row)

    def reset(self, indices: list[int], seeds: Sequence[int] | None, put_obs: Any) -> None:
        obs, _ = self.pool.reset(np.array(indices))
        for i, row in zip(indices, obs, strict=True):
            put_obs(i, row)


# -- n environments ---------------------------------------------------------------------------------------------


class Envs:
    """n environments as arrays. `rng` gives each of them a seed of its own."""

    def __init__(
        self,
        env_fn: EnvFn,
        n: int,
        rng: np.random.Generator,
        *,
        flatten_boxes: bool = True,
        continuous_only: bool = False,
    ):
        self.n = n
        self.seeds = [draw_seed(rng) for _ in range(n)]
        self._vector = self._make(env_fn)
        self.envs = self._vector.envs
        raw_space = as_gymnasium_space(self._vector.observation_space, "observation space")
        self.observation_space = network_observation_space(raw_space, flatten_boxes)
        self.action_space = as_gymnasium_space(self._vector.action_space, "action space")
        check_action_space(self.action_space, continuous_only)
        self.obs_shape: tuple[int, ...] = self.observation_space.shape
        self._convert_obs = _to_network_obs(raw_space, self.obs_shape)
        self._convert_actions = _to_env_actions(self.action_space)
        # Two sets of observations, used in turn: those of the last step stay valid during the next one.
        self._obs = np.zeros((n, *self.obs_shape), dtype=np.float32)
        self._obs2 = np.zeros_like(self._obs)
        self._zeros = np.zeros(self._obs.size, dtype=np.float32), np.zeros(n)
        self._rew = np.zeros(n)
        self._terminated = np.zeros(n, dtype=bool)
        self._truncated = np.zeros(n, dtype=bool)

    @property
    def is_pool(self) -> bool:
        """Whether the environments come as a vector, whose size is not ours to choose."""
        return isinstance(self._vector, _EnvPool)

    def shares_with(self, other: "Envs") -> bool:
        """Whether `env_fn` returned one and the same environment for both."""
        return bool({id(innermost(env)) for env in self.envs} & {id(innermost(env)) for env in other.envs})

    def _make(self, env_fn: EnvFn) -> _InProcess | _EnvPool:
        if not callable(env_fn):
            raise UserError(
                f"env_fn={env_fn!r}: must be a function that makes an environment, such as"
                " lambda: gymnasium.make('CartPole-v1')"
            )
        env = env_fn(self.n, self.seeds[0]) if isinstance(env_fn, EnvPoolFn) else env_fn()
        for part in ("reset", "step", "observation_space", "action_space"):
            if not hasattr(env, part):
                raise UserError(f"env_fn made {one_line(repr(env))}, which is no environment: it has no {part}")
        if hasattr(env, "all_env_ids"):  # an EnvPool
            if len(env) != self.n:
                raise UserError(f"num_envs={self.n}, but env_fn made an EnvPool of {len(env)}: make the two equal")
            return _EnvPool(env)
        if isinstance(env, gym.vector.VectorEnv):
            raise UserError(f"env_fn made {one_line(env)}, a vector of environments: let it make one, and use num_envs")
        return _InProcess([env, *(env_fn() for _ in range(self.n - 1))], self.seeds)

    def reset(self, seeds: Sequence[int] | None = None) -> np.ndarray:
        """Begin an episode in every environment, seeded; the observations to act on."""
        self.seeds[:] = seeds or self.seeds
        for env, seed in zip(self.envs, self.seeds, strict=False):
            if hasattr(env.action_space, "seed"):
                env.action_space.seed(seed)  # for wrappers and user code that sample from it
        return self._reset(list(range(self.n)), self.seeds)

    def restart(self, done: np.ndarray) -> np.ndarray:
        """Begin a new episode in every environment where `done`; the observations to act on next."""
        return self._reset(np.flatnonzero(done).tolist(), None)

    def _reset(self, indices: list[int], seeds: Sequence[int] | None) -> np.ndarray:
        self._obs2 = self._obs2.copy()  # the caller may still hold the final observations
        self._vector.reset(indices, seeds, self._put_obs)
        self._check_observations()
        return self._obs2

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """One step of each: true next observations, rewards, and the two ways in which an episode can end.

        The arrays are reused: rewards and flags by the next call, observations by the one after it.
        """
        self._obs, self._obs2 = self._obs2, self._obs
        self._vector.step(self._convert_actions(actions), self._put_obs, self._rew, self._terminated, self._truncated)
        # Zero times a number is zero, unless that is NaN or infinite: one quick test of everything.
        if self._zeros[0].dot(self._obs2.ravel()) + self._zeros[1].dot(self._rew) != 0:
            self._check_observations()
            for i in np.flatnonzero(~np.isfinite(self._rew)):
                raise NonFiniteError(f"environment {i} (seed {self.seeds[i]}) gave the reward {self._rew[i]}")
        return self._obs2, self._rew, self._terminated, self._truncated

    def _put_obs(self, i: int, obs: Any) -> None:
        if self._convert_obs is not None:
            try:
                obs = self._convert_obs(obs)
            except Exception as error:
                raise UserError(
                    f"environment {i} gave an observation that is not in its observation space"
                    f" {one_line(self._vector.observation_space)}: {one_line(repr(obs))}"
                ) from error
        shape = obs.shape if type(obs) is np.ndarray else np.shape(obs)
        if shape != self.obs_shape:  # an assignment alone would broadcast some wrong shapes
            raise UserError(
                f"environment {i} gave an observation of shape {np.shape(obs)}, its observation space promises"
                f" {self.obs_shape}: make the two agree"
            )
        try:
            self._obs2[i] = obs
        except (TypeError, ValueError) as error:
            raise UserError(
                f"environment {i} gave an observation that is not made of numbers: {one_line(repr(obs))}"
            ) from error

    def _check_observations(self) -> None:
        for i, obs in enumerate(self._obs2):
            if not np.isfinite(obs).all():
                bad = obs[~np.isfinite(obs)][0]
                raise NonFiniteError(f"environment {i} (seed {self.seeds[i]}) gave an observation with {bad} in it")
