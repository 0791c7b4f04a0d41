"""Models: state-space equations, known physics, tau, initial states, simulation and scores."""
