// The sandbox process of every pod: it holds the pod's namespaces open, reaps orphans, and ends when told to.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		for {
			child, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if child <= 0 || err != nil {
				break
			}
		}
	}
}
