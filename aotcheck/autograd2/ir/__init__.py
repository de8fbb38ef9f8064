"""The data of the compiler: sizes, geometries, graphs, descriptors, signatures, and FX modules made of them."""
