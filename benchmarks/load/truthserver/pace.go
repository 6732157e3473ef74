package main

import (
	"math/rand"
)

const gridNs = 1_000_000

// Plan is the pace at which requests are answered. A spread of 0.5 draws each time evenly from 50% to 150% of
// its mean, and 0 keeps it fixed.
type Plan struct {
	TTFTMs float64 `json:"ttft_ms"`
	TPOTMs float64 `json:"tpot_ms"`
	Spread float64 `json:"spread"`
	Seed   int64   `json:"seed"`
}

func (plan Plan) firstDelayNs(random *rand.Rand) int64 { return plan.draw(plan.TTFTMs, random) }

func (plan Plan) gapNs(random *rand.Rand) int64 { return plan.draw(plan.TPOTMs, random) }

func (plan Plan) draw(meanMs float64, random *rand.Rand) int64 {
	factor := 1.0
	if plan.Spread > 0 {
		factor += plan.Spread * (2*random.Float64() - 1)
	}
	return int64(meanMs * factor * 1e6)
}

func onGrid(ns int64) int64 { return (ns + gridNs - 1) / gridNs * gridNs }

// An event is the time at which a stream's next token is due.
type event struct {
	dueNs  int64
	stream *stream
}

// A schedule is a binary heap of events, the earliest first.
type schedule []event

func (s *schedule) push(e event) {
	*s = append(*s, e)
	heap := *s
	at := len(heap) - 1
	for at > 0 {
		parent := (at - 1) / 2
		if heap[parent].dueNs <= heap[at].dueNs {
			break
		}
		heap[parent], heap[at] = heap[at], heap[parent]
		at = parent
	}
}

func (s *schedule) pop() event {
	heap := *s
	first := heap[0]
	last := len(heap) - 1
	heap[0] = heap[last]
	heap[last] = event{}
	heap = heap[:last]
	at := 0
	for {
		child := 2*at + 1
		if child >= last {
			break
		}
		if child+1 < last && heap[child+1].dueNs < heap[child].dueNs {
			child++
		}
		if heap[at].dueNs <= heap[child].dueNs {
			break
		}
		heap[at], heap[child] = heap[child], heap[at]
		at = child
	}
	*s = heap
	return first
}
