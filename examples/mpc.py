"""Can a fitted model control the plant it was fitted to?

Fits the simulated cascaded tanks, and lets a model predictive controller in CasADi track a level with the pump: within
the pump's range, with a limited rate, and below a highest level. The plant is the simulator, not the model; what both
differ by is fed back as a constant. Needs the extra `export` (casadi).

    python examples/mpc.py
"""

from __future__ import annotations

import argparse

import casadi
import numpy as np

import tausid

TS, HORIZON = 4.0, 15  # seconds, samples
PUMP, RATE, HIGHEST = (0.0, 6.0), 1.0, 8.0  # volts; volts per sample; volts
LEVELS = (5.0, 7.5, 4.0)  # what the level shall be, one after the other


def make_controller(functions: dict[str, casadi.Function], nx: int) -> casadi.Function:
    """The optimal control problem; its parameters are the state, the last input, the feedback and the wanted levels."""
    pump, above = casadi.MX.sym("pump", HORIZON), casadi.MX.sym("above", HORIZON)
    x0, last, offset = casadi.MX.sym("x0", nx), casadi.MX.sym("last"), casadi.MX.sym("offset")
    wanted = casadi.MX.sym("wanted", HORIZON)
    x, levels = x0, []
    for k in range(HORIZON):
        x = functions["step"](x, pump[k], pump[k], TS)
        levels.append(functions["g"](x, pump[k]) + offset)
    level = casadi.vertcat(*levels)
    moves = pump - casadi.vertcat(last, pump[:-1])
    cost = casadi.sumsqr(level - wanted) + 0.1 * casadi.sumsqr(moves) + 100.0 * casadi.sumsqr(above)
    problem = {
        "x": casadi.vertcat(pump, above),
        "p": casadi.vertcat(x0, last, offset, wanted),
        "f": cost,
        "g": casadi.vertcat(moves, level - above),
    }
    quiet = {"print_time": False, "ipopt.print_level": 0, "ipopt.sb": "yes", "error_on_fail": False}
    return casadi.nlpsol("mpc", "ipopt", problem, {"expand": True, "ipopt.max_iter": 50, **quiet})


def control(model: tausid.Model, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Levels and pump voltages of the closed loop; what was measured before it gives the state that it begins from."""
    before = np.random.default_rng(0).uniform(2.0, 3.5, 60)
    response = tausid.datasets.tanks_response(before, ts=TS)
    x = model.simulate(tausid.Record.from_arrays(before, response, ts=TS)).x[-1]
    functions = tausid.export.to_casadi(model)
    solve = make_controller(functions, len(x))
    lowest, highest = np.repeat([PUMP[0], 0.0], HORIZON), np.repeat([PUMP[1], np.inf], HORIZON)
    below, over = np.repeat([-RATE, -np.inf], HORIZON), np.repeat([RATE, HIGHEST], HORIZON)
    guess, pump, levels = np.zeros(2 * HORIZON), before.tolist(), response.tolist()
    for level in wanted:
        offset = levels[-1] - float(functions["g"](x, pump[-1]))
        given = np.concatenate([x, [pump[-1], offset], np.full(HORIZON, level)])
        found = solve(x0=guess, p=given, lbx=lowest, ubx=highest, lbg=below, ubg=over)
        guess = np.asarray(found["x"]).ravel()
        pump[len(levels) - 1 :] = [float(np.clip(guess[0], *PUMP))]  # from the last measured level on
        x = np.asarray(functions["step"](x, pump[-1], pump[-1], TS)).ravel()
        levels.append(tausid.datasets.tanks_response([*pump, 0.0], ts=TS)[-1])
    return np.array(levels[-len(wanted) :]), np.array(pump[-len(wanted) :])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=60, help="samples at each level")
    samples = parser.parse_args().samples
    model = tausid.fit(tausid.datasets.simulate_tanks(seed=2).train, seed=0).model
    levels, pump = control(model, np.repeat(LEVELS, samples))
    for level, reached in zip(LEVELS, levels.reshape(len(LEVELS), samples), strict=True):
        settled = reached[-10:]
        print(f"wanted {level:.1f} V: the level is {settled.mean():.2f} V, within {np.ptp(settled):.2f} V")
    fastest = np.abs(np.diff(pump)).max()
    print(f"pump: {pump.min():.2f} to {pump.max():.2f} V, at most {fastest:.2f} V a sample")
    print(f"highest level: {levels.max():.2f} V, at most {HIGHEST:.2f} V allowed")


if __name__ == "__main__":
    main()
