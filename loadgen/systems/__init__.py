"""The systems that are compared: how each is started, filled and asked."""
