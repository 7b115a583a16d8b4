"""Every formula of the six algorithms in NumPy, double precision, written from its definition.

`p` is a dict of parameters with PyTorch's names ("pi.mu_net.0.weight"). Noise is an argument, gradients are central
differences, sums are double loops: nothing here is fast, and nothing is shared with what it checks.
"""

from copy import deepcopy
from typing import NamedTuple

import numpy as np

LOG_2PI = np.log(2 * np.pi)

# -- Networks -------------------------------------------------------------------------------------------------------


def relu(x):
    return np.maximum(x, 0)


def identity(x):
    return x


def linear(p, name, x):
    """x W^T + b."""
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def mlp(p, name, x, activation, output_activation=identity):
    """Linear layers at the even indices, an activation after each."""
    indices = sorted(int(key.split(".")[-2]) for key in p if key.startswith(name + ".") and key.endswith(".weight"))
    for i in indices:
        x = linear(p, f"{name}.{i}", x)
        x = activation(x) if i < indices[-1] else output_activation(x)
    return x


def v(p, obs):
    """V(s), (B,)."""
    return mlp(p, "v.v_net", obs, np.tanh)[..., 0]


def q(p, name, obs, act):
    """Q(s, a), (B,)."""
    return mlp(p, f"{name}.q", np.concatenate([obs, act], -1), relu)[..., 0]


def mu(p, obs, low, high):
    """The deterministic policy of DDPG and TD3: center + limit tanh(...), (B, act_dim)."""
    return (high + low) / 2 + (high - low) / 2 * mlp(p, "pi.pi", obs, relu, np.tanh)


def squashed(p, obs, noise, low, high):
    """SAC's policy: a = center + limit tanh(u), u = mu + std noise, and log pi(a|s) of the unscaled tanh(u)."""
    h = mlp(p, "pi.net", obs, relu, relu)
    mean, log_std = linear(p, "pi.mu_layer", h), np.clip(linear(p, "pi.log_std_layer", h), -20, 2)
    u = mean + np.exp(log_std) * noise
    logp = gaussian_likelihood(u, mean, log_std) - tanh_correction(u)
    return (high + low) / 2 + (high - low) / 2 * np.tanh(u), logp


# -- Distributions --------------------------------------------------------------------------------------------------


def gaussian_likelihood(x, mu, log_std):
    """log N(x; mu, std^2) = sum_i -1/2 ( ((x_i - mu_i) / std_i)^2 + 2 log std_i + log 2 pi )."""
    return (-0.5 * (((x - mu) / np.exp(log_std)) ** 2 + 2 * log_std + LOG_2PI)).sum(-1)


def tanh_correction_naive(u):
    """sum_i log(1 - tanh(u_i)^2): -inf from |u| = 19 on."""
    return np.log(1 - np.tanh(u) ** 2).sum(-1)


def tanh_correction(u):
    """The same, since 1 - tanh(u)^2 = 4 / (e^u + e^-u)^2."""
    return (2 * (np.log(2) - np.logaddexp(u, -u))).sum(-1)


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


class Gaussian(NamedTuple):
    mu: np.ndarray  # (B, act_dim)
    log_std: np.ndarray  # (act_dim,)

    def logp(self, act):
        return gaussian_likelihood(act, self.mu, self.log_std)

    def entropy(self):
        """sum_i log std_i + 1/2 log(2 pi e)."""
        return np.sum(self.log_std + 0.5 * (LOG_2PI + 1))

    def kl(self, other):
        """E_s KL(self || other) = sum_i log(std1/std0) + (var0 + (mu0 - mu1)^2) / (2 var1) - 1/2."""
        var0, var1 = np.exp(2 * self.log_std), np.exp(2 * other.log_std)
        terms = other.log_std - self.log_std + (var0 + (self.mu - other.mu) ** 2) / (2 * var1) - 0.5
        return terms.sum(-1).mean()


class Categorical(NamedTuple):
    logits: np.ndarray  # (B, n)

    def logp(self, act):
        return np.take_along_axis(log_softmax(self.logits), act.astype(int)[:, None], -1)[:, 0]

    def entropy(self):
        """E_s -sum_a p log p."""
        logp = log_softmax(self.logits)
        return -(np.exp(logp) * logp).sum(-1).mean()

    def kl(self, other):
        """E_s KL(self || other) = sum_a p0 (log p0 - log p1)."""
        logp0, logp1 = log_softmax(self.logits), log_softmax(other.logits)
        return (np.exp(logp0) * (logp0 - logp1)).sum(-1).mean()


def policy(p, obs):
    """pi(.|s) of the on-policy family."""
    if "pi.log_std" in p:
        return Gaussian(mlp(p, "pi.mu_net", obs, np.tanh), p["pi.log_std"])
    return Categorical(mlp(p, "pi.logits_net", obs, np.tanh))


# -- Returns --------------------------------------------------------------------------------------------------------


def discounted_sum(x, discount):
    """y_t = sum_k discount^k x_{t+k}."""
    return np.array([sum(discount**k * x[t + k] for k in range(len(x) - t)) for t in range(len(x))])


def gae(rew, val, last_val, gamma, lam):
    """adv_t = sum_k (gamma lam)^k delta_{t+k}, ret_t = sum_k gamma^k r_{t+k} + gamma^(T-t) V(s_T), in O(T^2)."""
    T, val = len(rew), [*val, last_val]
    delta = [rew[t] + gamma * val[t + 1] - val[t] for t in range(T)]
    adv = [sum((gamma * lam) ** k * delta[t + k] for k in range(T - t)) for t in range(T)]
    ret = [sum(gamma**k * rew[t + k] for k in range(T - t)) + gamma ** (T - t) * last_val for t in range(T)]
    return np.array(adv), np.array(ret)


# -- Losses ---------------------------------------------------------------------------------------------------------


def ratio(p, data):
    """pi(a|s) / pi_old(a|s)."""
    return np.exp(policy(p, data["obs"]).logp(data["act"]) - data["logp"])


def vpg_loss_pi(p, data):
    """-E[ log pi(a|s) A ]."""
    return -np.mean(policy(p, data["obs"]).logp(data["act"]) * data["adv"])


def ppo_loss_pi(p, data, clip_ratio):
    """-E[ min( ratio A, g(A) ) ], g(A) = (1 + eps) A where A > 0 and (1 - eps) A elsewhere."""
    adv = data["adv"]
    return -np.mean(np.minimum(ratio(p, data) * adv, np.where(adv > 0, 1 + clip_ratio, 1 - clip_ratio) * adv))


def trpo_loss_pi(p, data):
    """-E[ ratio A ]."""
    return -np.mean(ratio(p, data) * data["adv"])


def loss_v(p, data):
    """E[ (V(s) - ret)^2 ]."""
    return np.mean((v(p, data["obs"]) - data["ret"]) ** 2)


def squared_errors(p, names, data, y):
    """sum_j E[ (Q_j(s,a) - y)^2 ]."""
    return sum(np.mean((q(p, name, data["obs"], data["act"]) - y) ** 2) for name in names)


def min_q(p, obs, act):
    return np.minimum(q(p, "q1", obs, act), q(p, "q2", obs, act))


def ddpg_backup(targ, data, *, gamma, low, high):
    """y = r + gamma (1 - d) Q_targ(s', mu_targ(s'))."""
    o2 = data["obs2"]
    return data["rew"] + gamma * (1 - data["done"]) * q(targ, "q", o2, mu(targ, o2, low, high))


def td3_backup(targ, data, noise, *, gamma, target_noise, noise_clip, low, high):
    """y = r + gamma (1 - d) min_j Q_j,targ(s', clip(mu_targ(s') + clip(eps, -c, c), low, high))."""
    epsilon = np.clip(target_noise * noise, -noise_clip, noise_clip)
    a2 = np.clip(mu(targ, data["obs2"], low, high) + epsilon, low, high)
    return data["rew"] + gamma * (1 - data["done"]) * min_q(targ, data["obs2"], a2)


def sac_backup(p, targ, data, noise, *, gamma, alpha, low, high):
    """y = r + gamma (1 - d) ( min_j Q_j,targ(s',a') - alpha log pi(a'|s') ), a' from the current policy."""
    a2, logp_a2 = squashed(p, data["obs2"], noise, low, high)
    return data["rew"] + gamma * (1 - data["done"]) * (min_q(targ, data["obs2"], a2) - alpha * logp_a2)


def deterministic_loss_pi(p, name, data, low, high):
    """-E[ Q(s, mu(s)) ]."""
    return -np.mean(q(p, name, data["obs"], mu(p, data["obs"], low, high)))


def sac_loss_pi(p, data, noise, *, alpha, low, high):
    """E[ alpha log pi(a|s) - min_j Q_j(s,a) ]."""
    a, logp_a = squashed(p, data["obs"], noise, low, high)
    return np.mean(alpha * logp_a - min_q(p, data["obs"], a))


# -- Optimisation ---------------------------------------------------------------------------------------------------


def part(p, prefix):
    """The names of the parameters of one network."""
    return [name for name in p if name.startswith(prefix)]


def flatten(p, prefix):
    return np.concatenate([p[name].ravel() for name in part(p, prefix)])


def unflatten(p, prefix, x):
    """`p` with the parameters of one network taken from a vector."""
    p, start = dict(p), 0
    for name in part(p, prefix):
        p[name] = x[start : start + p[name].size].reshape(p[name].shape)
        start += p[name].size
    return p


def grad(f, x, h=1e-6):
    """df/dx_i = ( f(x + h e_i) - f(x - h e_i) ) / 2h."""
    return np.array([(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(len(x))])


def hessian(f, x, h=1e-4):
    """d2f/dx_i dx_j = ( f(x + h e_i + h e_j) - f(x + h e_i - h e_j) - f(x - h e_i + h e_j) + ... ) / 4h^2."""
    H, e = np.zeros((len(x), len(x))), h * np.eye(len(x))
    for i in range(len(x)):
        for j in range(i + 1):
            ends = [f(x + s * e[i] + t * e[j]) * s * t for s in (1, -1) for t in (1, -1)]
            H[i, j] = H[j, i] = sum(ends) / (4 * h**2)
    return H


def grad_of(loss, p, prefix):
    """The gradient of loss(p) in the parameters of one network, as one vector."""
    return grad(lambda x: loss(unflatten(p, prefix, x)), flatten(p, prefix))


class Adam:
    """m <- b1 m + (1 - b1) g,  v <- b2 v + (1 - b2) g^2,  x <- x - lr m^ / (sqrt(v^) + 1e-8)."""

    def __init__(self, lr, b1=0.9, b2=0.999):
        self.lr, self.b1, self.b2, self.m, self.v, self.t = lr, b1, b2, 0.0, 0.0, 0

    def step(self, x, g):
        self.t += 1
        self.m = self.b1 * self.m + (1 - self.b1) * g
        self.v = self.b2 * self.v + (1 - self.b2) * g**2
        m_hat, v_hat = self.m / (1 - self.b1**self.t), self.v / (1 - self.b2**self.t)
        return x - self.lr * m_hat / (np.sqrt(v_hat) + 1e-8)

    def descend(self, loss, p, prefix):
        """`p` after one step down the gradient of loss(p) in the parameters of one network."""
        return unflatten(p, prefix, self.step(flatten(p, prefix), grad_of(loss, p, prefix)))


def polyak(targ, main, rho):
    """targ <- rho targ + (1 - rho) main."""
    return {name: rho * targ[name] + (1 - rho) * main[name] for name in targ}


def conjugate_gradient(H, g):
    """What the conjugate gradient method converges to: the solution of H x = g."""
    return np.linalg.solve(H, g)


# -- One update of each algorithm -----------------------------------------------------------------------------------


class OnPolicy:
    """Parameters, optimisers, and the columns that all three have in common."""

    def __init__(self, p, **hyper):
        self.p, self.hyper = deepcopy(p), hyper
        self.pi_optimizer, self.v_optimizer = Adam(hyper.get("pi_lr")), Adam(hyper["vf_lr"])

    def update(self, data):
        before, pi_old = self.losses(data), policy(self.p, data["obs"])
        extra = self.update_pi(data)
        for _ in range(self.hyper["train_v_iters"]):
            self.p = self.v_optimizer.descend(lambda p: loss_v(p, data), self.p, "v.")
        after, pi = self.losses(data), policy(self.p, data["obs"])
        return dict(
            LossPi=before[0],
            LossV=before[1],
            DeltaLossPi=after[0] - before[0],
            DeltaLossV=after[1] - before[1],
            Entropy=pi_old.entropy(),
            KL=self.kl(data, pi_old, pi),
            **extra,
        )

    def losses(self, data):
        return self.loss_pi(self.p, data), loss_v(self.p, data)

    def kl(self, data, pi_old, pi):
        """The sample estimate of KL(old || new): E[ log pi_old(a|s) - log pi(a|s) ]."""
        return np.mean(data["logp"] - pi.logp(data["act"]))


class VPG(OnPolicy):
    def loss_pi(self, p, data):
        return vpg_loss_pi(p, data)

    def update_pi(self, data):
        self.p = self.pi_optimizer.descend(lambda p: self.loss_pi(p, data), self.p, "pi.")
        return {}


class PPO(OnPolicy):
    def loss_pi(self, p, data):
        return ppo_loss_pi(p, data, self.hyper["clip_ratio"])

    def update_pi(self, data):
        steps = 0
        for _ in range(self.hyper["train_pi_iters"]):
            kl = self.kl(data, None, policy(self.p, data["obs"]))
            if self.hyper["target_kl"] is not None and kl > 1.5 * self.hyper["target_kl"]:
                break
            self.p = self.pi_optimizer.descend(lambda p: self.loss_pi(p, data), self.p, "pi.")
            steps += 1
        return dict(ClipFrac=np.mean(abs(ratio(self.p, data) - 1) > self.hyper["clip_ratio"]), StopIter=steps)


class TRPO(OnPolicy):
    def loss_pi(self, p, data):
        return trpo_loss_pi(p, data)

    def kl(self, data, pi_old, pi):
        """KL(old || new) itself."""
        return pi_old.kl(pi)

    def hessian(self, data):
        """Of KL(old || new) in the policy's parameters, at the old policy, damped."""
        x, pi_old = flatten(self.p, "pi."), policy(self.p, data["obs"])
        H = hessian(lambda x: pi_old.kl(policy(unflatten(self.p, "pi.", x), data["obs"])), x)
        return H + self.hyper["damping_coeff"] * np.eye(len(x))

    def update_pi(self, data):
        old, pi_old, H = self.p, policy(self.p, data["obs"]), self.hessian(data)
        x = conjugate_gradient(H, grad_of(lambda p: self.loss_pi(p, data), old, "pi."))
        full_step = np.sqrt(2 * self.hyper["delta"] / (x @ H @ x)) * x
        trials = 1 if self.hyper["algo"] == "npg" else self.hyper["backtrack_iters"]
        for j in range(trials):
            self.p = unflatten(old, "pi.", flatten(old, "pi.") - self.hyper["backtrack_coeff"] ** j * full_step)
            if self.hyper["algo"] == "npg":
                return {}
            small = pi_old.kl(policy(self.p, data["obs"])) <= self.hyper["delta"]
            if small and self.loss_pi(self.p, data) <= self.loss_pi(old, data):
                return dict(BacktrackIters=j)
        self.p = old
        return dict(BacktrackIters=max(trials - 1, 0))


class OffPolicy:
    """Parameters, targets, optimisers. Noise comes in the order in which it is used."""

    critics: tuple[str, ...] = ("q1", "q2")
    target_prefixes: tuple[str, ...] = ("pi.", "q")

    def __init__(self, p, low, high, **hyper):
        self.p, self.hyper, self.bounds = deepcopy(p), hyper, dict(low=low, high=high)
        self.targ = {name: x for name, x in self.p.items() if name.startswith(self.target_prefixes)}
        self.pi_optimizer = Adam(hyper.get("pi_lr", hyper.get("lr")))
        self.q_optimizer = Adam(hyper.get("q_lr", hyper.get("lr")))

    def update_critics(self, data, y):
        """One step; the columns as they were before it."""

        def loss(p):
            return squared_errors(p, self.critics, data, y)

        columns = {name.upper() + "Vals": q(self.p, name, data["obs"], data["act"]) for name in self.critics}
        columns["LossQ"] = loss(self.p)
        self.p = self.q_optimizer.descend(loss, self.p, "q")
        return columns

    def update_policy(self, loss):
        loss_before = loss(self.p)
        self.p = self.pi_optimizer.descend(loss, self.p, "pi.")
        return dict(LossPi=loss_before)

    def update_targets(self):
        self.targ = polyak(self.targ, self.p, self.hyper["polyak"])


class DDPG(OffPolicy):
    critics = ("q",)

    def backup(self, data):
        return ddpg_backup(self.targ, data, gamma=self.hyper["gamma"], **self.bounds)

    def loss_pi(self, p, data):
        return deterministic_loss_pi(p, "q", data, **self.bounds)

    def update(self, data):
        columns = self.update_critics(data, self.backup(data))
        columns |= self.update_policy(lambda p: self.loss_pi(p, data))
        self.update_targets()
        return columns


class TD3(OffPolicy):
    updates = 0

    def backup(self, data, noise):
        hyper = {key: self.hyper[key] for key in ("gamma", "target_noise", "noise_clip")}
        return td3_backup(self.targ, data, noise, **hyper, **self.bounds)

    def loss_pi(self, p, data):
        return deterministic_loss_pi(p, "q1", data, **self.bounds)

    def update(self, data, noise):
        columns = self.update_critics(data, self.backup(data, noise))
        if self.updates % self.hyper["policy_delay"] == 0:
            columns |= self.update_policy(lambda p: self.loss_pi(p, data))
            self.update_targets()
        self.updates += 1
        return columns


class SAC(OffPolicy):
    target_prefixes = ("q",)

    def __init__(self, p, low, high, **hyper):
        super().__init__(p, low, high, **hyper)
        self.alpha, self.learned = hyper["alpha"], hyper["alpha"] == "auto"
        if self.learned:
            self.alpha, self.log_alpha, self.alpha_optimizer = 1.0, np.zeros(1), Adam(hyper["lr"])

    def backup(self, data, noise):
        hyper = dict(gamma=self.hyper["gamma"], alpha=self.alpha)
        return sac_backup(self.p, self.targ, data, noise, **hyper, **self.bounds)

    def loss_pi(self, p, data, noise):
        return sac_loss_pi(p, data, noise, alpha=self.alpha, **self.bounds)

    def update(self, data, noise_q, noise_pi):
        columns = self.update_critics(data, self.backup(data, noise_q))
        columns["LogPi"] = squashed(self.p, data["obs"], noise_pi, **self.bounds)[1]
        columns |= self.update_policy(lambda p: self.loss_pi(p, data, noise_pi))
        if self.learned:
            # L_alpha = -log(alpha) E[ log pi(a|s) + target_entropy ], target_entropy = -dim(A)
            gradient = -(columns["LogPi"].mean() - data["act"].shape[-1])
            self.log_alpha = self.alpha_optimizer.step(self.log_alpha, gradient)
            columns["Alpha"] = self.alpha = np.exp(self.log_alpha[0])
        self.update_targets()
        return columns


ALGORITHMS = dict(vpg=VPG, ppo=PPO, trpo=TRPO, ddpg=DDPG, td3=TD3, sac=SAC)
