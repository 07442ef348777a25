"""Work that both front ends do, composed once from sources, launch, rules and analysis."""
