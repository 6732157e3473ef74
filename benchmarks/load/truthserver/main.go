// Truthserver answers as vLLM does, on a clock instead of a model, and stamps what really happened.
//
// One thread serves all connections from one epoll. The truth of a request: when the kernel got its last byte
// (SO_TIMESTAMPNS), and when its first and its last token were handed to the kernel. So whatever delays this
// program is in the truth and not in a client's error. Tokens leave on a grid of one millisecond, as many
// streams of an engine leave in one step.
//
//	POST /v1/completions, /v1/chat/completions   a stream of server-sent events
//	GET  /v1/models, /health                     what clients ask before they begin
//	POST /plan                                   sets the pace and forgets the truth so far
//	GET  /truth                                  one row for each request since
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"runtime"
	"runtime/debug"
	"syscall"
)

func main() {
	address := flag.String("listen", "127.0.0.1:0", "address and port; port 0 takes a free one")
	flag.Parse()
	runtime.GOMAXPROCS(1)
	runtime.LockOSThread()
	debug.SetGCPercent(1000)
	raiseFileLimit()
	listener, port, err := listen(*address)
	if err != nil {
		log.Fatalf("cannot listen on %s: %v", *address, err)
	}
	fmt.Printf("listening on port %d\n", port)
	server, err := newServer(listener)
	if err != nil {
		log.Fatalf("cannot start: %v", err)
	}
	log.Fatal(server.run())
}

func raiseFileLimit() {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		limit.Cur = limit.Max
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	}
}

func listen(address string) (fd, port int, err error) {
	listener, err := net.Listen("tcp4", address)
	if err != nil {
		return 0, 0, err
	}
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		return 0, 0, err
	}
	fd, err = syscall.Dup(int(file.Fd()))
	if err != nil {
		return 0, 0, err
	}
	port = listener.Addr().(*net.TCPAddr).Port
	_ = file.Close()
	_ = listener.Close()
	return fd, port, syscall.SetNonblock(fd, true)
}
