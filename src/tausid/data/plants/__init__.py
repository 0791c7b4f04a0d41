"""Simulated plants: their equations, parameters with units, and an experiment that is usual for each."""

from tausid.data.plants._blocks import DeadZoneValve, LinearPlant, VanDerPol, WienerHammerstein
from tausid.data.plants._excitation import AbstractExcitation, Multisine, Steps, Sweep
from tausid.data.plants._mechanics import BoucWen, Duffing, MassChain, RectifiedMotor, SlidingMass, TwoMassDrive
from tausid.data.plants._plant import AbstractPlant, parameter, parameter_units
from tausid.data.plants._processes import (
    DelayedTank,
    FlowHeater,
    Furnace,
    Neutralization,
    QuadrupleTanks,
    SolderingIron,
)
from tausid.data.plants._simulate import PLANTS, response, simulate
from tausid.data.plants._tanks import TankParameters, simulate_tanks, tanks_response

__all__ = [
    "PLANTS",
    "AbstractExcitation",
    "AbstractPlant",
    "BoucWen",
    "DeadZoneValve",
    "DelayedTank",
    "Duffing",
    "FlowHeater",
    "Furnace",
    "LinearPlant",
    "MassChain",
    "Multisine",
    "Neutralization",
    "QuadrupleTanks",
    "RectifiedMotor",
    "SlidingMass",
    "SolderingIron",
    "Steps",
    "Sweep",
    "TankParameters",
    "TwoMassDrive",
    "VanDerPol",
    "WienerHammerstein",
    "parameter",
    "parameter_units",
    "response",
    "simulate",
    "simulate_tanks",
    "tanks_response",
]
