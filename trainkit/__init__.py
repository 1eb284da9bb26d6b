"""A run is a function from one typed config to one typed row; everything else composes configs or reads rows."""
