"""Studies over many random task sets: generators, acceptance ratios, bounds against simulations."""
