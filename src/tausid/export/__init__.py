"""Models outside of tausid: one description of a model, and what is written from it.

`describe` turns a model into plain arrays and a short list of operations; `interpreter` computes with these by numpy,
and is the reference of every target.
"""

from tausid.export.casadi_files import to_casadi as to_casadi
from tausid.export.control_systems import to_control as to_control
from tausid.export.control_systems import to_state_space as to_state_space
from tausid.export.description import Description as Description
from tausid.export.description import describe as describe
from tausid.export.onnx_files import to_onnx as to_onnx
from tausid.export.writing import write_model as write_model
