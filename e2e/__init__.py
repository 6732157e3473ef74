"""Tests on a real Kubernetes cluster, and the tool that runs one on a bare machine (`e2e.cluster`)."""
