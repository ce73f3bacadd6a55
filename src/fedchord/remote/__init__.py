"""A federation over machines: both halves of a round, without the transport between them."""
