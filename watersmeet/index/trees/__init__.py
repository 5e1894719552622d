"""Trees: B+-Trees and the immutable CSS-tree, what PIM makes of the two, and the WiB+-Tree."""
