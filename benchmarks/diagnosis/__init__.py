"""`make bench-diagnosis`: a simulated fleet with known truth. Each scenario describes a load and a fault, runs the
engine under it in simulated time, scrapes it as Prometheus would, and asks the product's rules what is wrong."""
