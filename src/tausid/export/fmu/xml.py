"""The model description of an FMU, for FMI 2.0 and 3.0: names, units, start values, states and what depends on what."""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from tausid.export.description import Description
from tausid.export.names import identifiers, quoted

SOURCES = ("{name}.c", "fmi{version}.c")


@dataclass(frozen=True)
class Variable:
    """A variable; its value reference is its place in the list, after time."""

    name: str
    causality: str
    initial: str
    description: str
    unit: str = ""
    start: float | None = None
    state: int | None = None  # of a derivative: the reference of its state


def variables_of(d: Description) -> list[Variable]:
    """Inputs, outputs, states and state derivatives, in the order of their value references from 1 on."""
    states = [f"x{i + 1}" for i in range(d.nx)]
    safe = identifiers((*d.input_names, *d.output_names), taken=["time", *states])
    units = [unit if unit.isprintable() else quoted(unit) for unit in (*d.input_units, *d.output_units)]
    late = [f"; acts {delay:g} s later, which model exchange leaves to you" if delay else "" for delay in d.delays]
    said = [quoted(name) + later for name, later in zip(d.input_names, late, strict=True)]
    said += [quoted(name) for name in d.output_names]
    inputs = [Variable(safe[i], "input", "exact", said[i], units[i], start=float(d.u_mean[i])) for i in range(d.nu)]
    outputs = [Variable(safe[i], "output", "calculated", said[i], units[i]) for i in range(d.nu, d.nu + d.ny)]
    local = [
        Variable(name, "local", "exact", "state, normalized", start=float(value))
        for name, value in zip(states, d.x0, strict=True)
    ]
    slopes = [
        Variable(f"der({name})", "local", "calculated", "state derivative per second", state=1 + d.nu + d.ny + i)
        for i, name in enumerate(states)
    ]
    return [*inputs, *outputs, *local, *slopes]


def model_description(d: Description, name: str, token: str, version: int) -> bytes:
    """`modelDescription.xml`."""
    from tausid import __version__

    variables = variables_of(d)
    key = {2: "guid", 3: "instantiationToken"}[version]
    root = Element(
        "fmiModelDescription",
        {"fmiVersion": f"{version}.0", "modelName": name, key: token, "generationTool": f"tausid {__version__}"},
        variableNamingConvention="structured",
    )
    _interfaces(root, name, version)
    units = sorted({variable.unit for variable in variables} - {""})
    if units:
        declared = SubElement(root, "UnitDefinitions")
        for unit in units:
            SubElement(declared, "Unit", name=unit)
    SubElement(root, "DefaultExperiment", startTime="0", stopTime=repr(100 * d.ts), stepSize=repr(d.ts))
    listed = SubElement(root, "ModelVariables")
    if version == 3:
        SubElement(
            listed, "Float64", name="time", valueReference="0", causality="independent", variability="continuous"
        )
    for reference, variable in enumerate(variables, start=1):
        _variable(listed, variable, reference, version)
    _structure(root, variables, version)
    indent(root)
    return tostring(root, encoding="UTF-8", xml_declaration=True)


def build_description(name: str) -> bytes:
    """`sources/buildDescription.xml` of FMI 3.0."""
    root = Element("fmiBuildDescription", fmiVersion="3.0")
    files = SubElement(SubElement(root, "BuildConfiguration", modelIdentifier=name), "SourceFileSet", language="C99")
    for file in SOURCES:
        SubElement(files, "SourceFile", name=file.format(name=name, version=3))
    indent(root)
    return tostring(root, encoding="UTF-8", xml_declaration=True)


def _interfaces(root: Element, name: str, version: int) -> None:
    can = {2: ("providesDirectionalDerivative", "canGetAndSetFMUstate")}
    both = {"modelIdentifier": name} | dict.fromkeys(
        can.get(version, ("providesDirectionalDerivatives", "canGetAndSetFMUState")), "true"
    )
    step = {"canHandleVariableCommunicationStepSize": "true"}
    step |= {"canInterpolateInputs": "true"} if version == 2 else {}
    for kind, attributes in {"ModelExchange": both, "CoSimulation": both | step}.items():
        interface = SubElement(root, kind, attributes)
        if version == 2:
            files = SubElement(interface, "SourceFiles")
            for file in SOURCES:
                SubElement(files, "File", name=file.format(name=name, version=2))


def _variable(listed: Element, variable: Variable, reference: int, version: int) -> None:
    about = {
        "name": variable.name,
        "valueReference": str(reference),
        "description": variable.description,
        "causality": variable.causality,
        "variability": "continuous",
        "initial": variable.initial,
    }
    if variable.causality == "input":
        del about["initial"]  # it has but one, which must not be said
    value = {"unit": variable.unit} if variable.unit else {}
    value |= {} if variable.start is None else {"start": repr(variable.start)}
    value |= {} if variable.state is None else {"derivative": str(variable.state)}
    if version == 2:
        SubElement(SubElement(listed, "ScalarVariable", about), "Real", value)
    else:
        SubElement(listed, "Float64", about | value)


def _structure(root: Element, variables: list[Variable], version: int) -> None:
    """Outputs, derivatives and what initialization computes; each may depend on everything."""
    numbered = list(enumerate(variables, start=1))
    outputs = [i for i, v in numbered if v.causality == "output"]
    slopes = [i for i, v in numbered if v.state is not None]
    structure = SubElement(root, "ModelStructure")
    parts = {"Output": outputs, "ContinuousStateDerivative": slopes, "InitialUnknown": [*outputs, *slopes]}
    for kind, references in parts.items():
        if version == 3:
            for i in references:
                SubElement(structure, kind, valueReference=str(i))
        elif references:
            group = SubElement(structure, {"ContinuousStateDerivative": "Derivatives"}.get(kind, f"{kind}s"))
            for i in references:
                SubElement(group, "Unknown", index=str(i))
