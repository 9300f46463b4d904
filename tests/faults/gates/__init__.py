"""Gates that go off and on under pods that run (R-15): what was given to them is not touched by anybody."""
