package main

import (
	"math/rand"
	"syscall"
	"time"
	"unsafe"
)

const (
	soTimestampNs = 35
	clockRealtime = 0
	timerAbsolute = 1
	readBytes     = 1 << 16
)

type server struct {
	epoll, listener, timer int
	connections            map[int32]*connection
	schedule               schedule
	armedNs                int64
	plan                   Plan
	random                 *rand.Rand
	truth                  []*truth
	input, control         []byte
}

// A truth is what really happened to a request. Times are nanoseconds since the epoch, 0 before they came.
type truth struct {
	arrivedNs, firstNs, lastNs int64
	tokens                     int
}

func newServer(listener int) (*server, error) {
	epoll, err := syscall.EpollCreate1(0)
	if err != nil {
		return nil, err
	}
	timer, _, errno := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, clockRealtime, syscall.O_NONBLOCK, 0)
	if errno != 0 {
		return nil, errno
	}
	s := &server{
		epoll: epoll, listener: listener, timer: int(timer),
		connections: map[int32]*connection{},
		plan:        Plan{TTFTMs: 100, TPOTMs: 20},
		random:      rand.New(rand.NewSource(0)),
		input:       make([]byte, readBytes),
		control:     make([]byte, 128),
	}
	for _, fd := range []int{listener, s.timer} {
		if err := s.watch(syscall.EPOLL_CTL_ADD, fd, syscall.EPOLLIN); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *server) watch(operation, fd int, events uint32) error {
	return syscall.EpollCtl(s.epoll, operation, fd, &syscall.EpollEvent{Events: events, Fd: int32(fd)})
}

func (s *server) run() error {
	events := make([]syscall.EpollEvent, 1024)
	for {
		count, err := syscall.EpollWait(s.epoll, events, -1)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		for _, ready := range events[:count] {
			switch int(ready.Fd) {
			case s.listener:
				s.accept()
			case s.timer:
				var expirations [8]byte
				_, _ = syscall.Read(s.timer, expirations[:])
				s.armedNs = 0
			default:
				if c := s.connections[ready.Fd]; c != nil {
					s.serve(c, ready.Events)
				}
			}
		}
		s.sendDue()
	}
}

func (s *server) accept() {
	for {
		fd, _, err := syscall.Accept4(s.listener, syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
		if err != nil {
			return
		}
		_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
		_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, soTimestampNs, 1)
		if s.watch(syscall.EPOLL_CTL_ADD, fd, syscall.EPOLLIN) != nil {
			_ = syscall.Close(fd)
			continue
		}
		s.connections[int32(fd)] = &connection{fd: fd}
	}
}

func (s *server) serve(c *connection, events uint32) {
	if events&syscall.EPOLLOUT != 0 {
		s.flush(c)
	}
	if events&^uint32(syscall.EPOLLOUT) == 0 {
		return
	}
	count, controlBytes, _, _, err := syscall.Recvmsg(c.fd, s.input, s.control, 0)
	if err == syscall.EAGAIN || err == syscall.EINTR {
		return
	}
	if err != nil || count == 0 {
		s.drop(c)
		return
	}
	c.input = append(c.input, s.input[:count]...)
	arrivedNs := kernelStamp(s.control[:controlBytes])
	for {
		request, rest, complete := takeRequest(c.input)
		if !complete {
			return
		}
		c.input = rest
		s.answer(c, request, arrivedNs)
	}
}

// kernelStamp is when the kernel got the last bytes of a read; this moment if it does not tell.
func kernelStamp(control []byte) int64 {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err == nil {
		for _, message := range messages {
			if message.Header.Level == syscall.SOL_SOCKET && message.Header.Type == soTimestampNs && len(message.Data) >= 16 {
				stamp := (*[2]int64)(unsafe.Pointer(&message.Data[0]))
				return stamp[0]*1e9 + stamp[1]
			}
		}
	}
	return time.Now().UnixNano()
}

func (s *server) drop(c *connection) {
	c.closed = true
	delete(s.connections, int32(c.fd))
	_ = syscall.Close(c.fd)
}

// sendDue sends all tokens that are due, and sets the timer to the next.
func (s *server) sendDue() {
	for len(s.schedule) > 0 && s.schedule[0].dueNs <= time.Now().UnixNano() {
		e := s.schedule.pop()
		if !e.stream.connection.closed {
			s.sendToken(e)
		}
	}
	if len(s.schedule) == 0 || s.schedule[0].dueNs == s.armedNs {
		return
	}
	s.armedNs = s.schedule[0].dueNs
	setting := [4]int64{0, 0, s.armedNs / 1e9, s.armedNs % 1e9}
	_, _, _ = syscall.Syscall6(syscall.SYS_TIMERFD_SETTIME, uintptr(s.timer), timerAbsolute,
		uintptr(unsafe.Pointer(&setting)), 0, 0, 0)
}

// write hands bytes to the kernel; what it does not take waits until it does.
func (s *server) write(c *connection, data []byte) {
	if c.closed {
		return
	}
	if len(c.unsent) == 0 {
		count, err := syscall.Write(c.fd, data)
		if err != nil && err != syscall.EAGAIN && err != syscall.EINTR {
			s.drop(c)
			return
		}
		data = data[max(count, 0):]
		if len(data) == 0 {
			return
		}
		_ = s.watch(syscall.EPOLL_CTL_MOD, c.fd, syscall.EPOLLIN|syscall.EPOLLOUT)
	}
	c.unsent = append(c.unsent, data...)
}

func (s *server) flush(c *connection) {
	waiting := c.unsent
	c.unsent = nil
	if s.write(c, waiting); len(c.unsent) == 0 && !c.closed {
		_ = s.watch(syscall.EPOLL_CTL_MOD, c.fd, syscall.EPOLLIN)
	}
}
