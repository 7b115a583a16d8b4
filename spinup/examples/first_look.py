"""Look at a finished PPO run on CartPole-v1: evaluate the saved policy, draw the learning curve, say what to try next.

python -m spinup.examples.first_look data/first/first_s0
"""

import os
import sys
from pathlib import Path

import gymnasium as gym
import matplotlib
import numpy as np
import torch

from spinup.algos.pytorch.learn import numpy_policy

ENV, SOLVED, EPISODES = "CartPole-v1", 475, 100  # the task counts as solved at a mean return of 475

NEXT = """Three commands to try next:
    {python} -m spinup.run ppo --help
    {python} -m spinup.run ppo --env InvertedPendulum-v5 --epochs 20
    {python} -m spinup.run sac --env Pendulum-v1 --steps_per_epoch 1000 --epochs 8 --start_steps 1000
"""


def evaluate(model_file: Path) -> np.ndarray:
    """Returns of episodes with the most likely action in every state."""
    policy = numpy_policy(torch.load(model_file))
    env, returns = gym.make(ENV), []
    for episode in range(EPISODES):
        (o, _), ret, done = env.reset(seed=1000 + episode), 0.0, False
        while not done:
            a = policy.mode(o[None])[0]
            o, r, terminated, truncated, _ = env.step(int(a))
            ret, done = ret + float(r), terminated or truncated
        returns.append(ret)
    return np.array(returns)


def draw_learning_curve(log_file: Path, picture: Path) -> None:
    matplotlib.use("Agg")  # no display needed
    import matplotlib.pyplot as plt

    log = np.genfromtxt(log_file, names=True)
    fig, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
    ax.fill_between(log["TotalEnvInteracts"], log["MinEpRet"], log["MaxEpRet"], alpha=0.2, label="lowest to highest")
    ax.plot(log["TotalEnvInteracts"], log["AverageEpRet"], label="mean of the epoch's episodes")
    ax.axhline(SOLVED, color="gray", linestyle="--", linewidth=1, label="solved")
    ax.set(xlabel="environment steps", ylabel="return", title=f"PPO on {ENV}", ylim=(0, 520))
    fig.legend(loc="outside lower center", ncols=3)
    fig.savefig(picture, dpi=150)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(f"usage: {__doc__.rpartition('python')[1]}{__doc__.rpartition('python')[2].strip()}")
    run = Path(sys.argv[1])
    returns = evaluate(run / "pyt_save" / "model.pt")
    draw_learning_curve(run / "progress.txt", run / "learning_curve.png")
    print(
        f"\nThe saved policy scores {returns.mean():.1f} +- {returns.std():.1f} over {EPISODES} new episodes", end=" "
    )
    print(f"({SOLVED} counts as solved, 500 is the most there is).")
    for name in ("pyt_save/model.pt", "progress.txt", "learning_curve.png"):
        print(f"    {run / name}")
    print()
    print(NEXT.format(python=os.path.relpath(sys.executable)))  # of an environment that may not be activated
    if returns.mean() < SOLVED:
        sys.exit("the task is not solved: train for more epochs")


if __name__ == "__main__":
    main()
