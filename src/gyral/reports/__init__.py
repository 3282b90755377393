"""Tables and figures made from run directories."""
