package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand"
	"strconv"
	"time"
)

type connection struct {
	fd            int
	input, unsent []byte
	closed        bool
}

type request struct {
	method, path string
	body         []byte
}

// takeRequest cuts the first whole request off the input. A request without a length has no body.
func takeRequest(input []byte) (found request, rest []byte, complete bool) {
	head, after, whole := bytes.Cut(input, []byte("\r\n\r\n"))
	if !whole {
		return request{}, input, false
	}
	lines := bytes.Split(head, []byte("\r\n"))
	length := 0
	for _, line := range lines[1:] {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if bytes.EqualFold(name, []byte("content-length")) {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
		}
	}
	if len(after) < length {
		return request{}, input, false
	}
	fields := bytes.Fields(lines[0])
	if len(fields) < 2 {
		return request{}, nil, false
	}
	return request{string(fields[0]), string(fields[1]), after[:length:length]}, after[length:], true
}

// asked is what the server heeds of a request; a prompt is text or a list of token ids.
type asked struct {
	Model               string          `json:"model"`
	Prompt              json.RawMessage `json:"prompt"`
	Messages            json.RawMessage `json:"messages"`
	MaxTokens           int             `json:"max_tokens"`
	MaxCompletionTokens int             `json:"max_completion_tokens"`
	StreamOptions       struct {
		IncludeUsage         bool `json:"include_usage"`
		ContinuousUsageStats bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`
}

// A stream is one answer under way.
type stream struct {
	connection        *connection
	truth             *truth
	before, after     []byte
	usage, everyUsage bool
	promptTokens      int
	tokens            int
}

func (s *server) answer(c *connection, r request, arrivedNs int64) {
	switch {
	case r.method == "POST" && (r.path == "/v1/completions" || r.path == "/v1/chat/completions"):
		s.begin(c, r, arrivedNs)
	case r.method == "POST" && r.path == "/plan":
		plan := Plan{}
		if err := json.Unmarshal(r.body, &plan); err != nil {
			s.reply(c, "400 Bad Request", []byte(err.Error()))
			return
		}
		s.plan, s.truth, s.random = plan, nil, rand.New(rand.NewSource(plan.Seed))
		s.reply(c, "200 OK", []byte("{}"))
	case r.path == "/truth":
		rows := make([][4]int64, len(s.truth))
		for at, t := range s.truth {
			rows[at] = [4]int64{t.arrivedNs, t.firstNs, t.lastNs, int64(t.tokens)}
		}
		body, _ := json.Marshal(rows)
		s.reply(c, "200 OK", body)
	case r.path == "/v1/models":
		s.reply(c, "200 OK", []byte(`{"object":"list","data":[{"id":"truth","object":"model","owned_by":"truth","max_model_len":4096}]}`))
	case r.path == "/health":
		s.reply(c, "200 OK", nil)
	default:
		s.reply(c, "404 Not Found", []byte(`{"object":"error","message":"not here"}`))
	}
}

func (s *server) reply(c *connection, status string, body []byte) {
	s.write(c, fmt.Appendf(nil, "HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s", status, len(body), body))
}

const streamHead = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"

func (s *server) begin(c *connection, r request, arrivedNs int64) {
	ask := asked{}
	if err := json.Unmarshal(r.body, &ask); err != nil {
		s.reply(c, "400 Bad Request", []byte(`{"object":"error","message":"the request is not JSON"}`))
		return
	}
	one := &stream{
		connection:   c,
		truth:        &truth{arrivedNs: arrivedNs},
		tokens:       max(1, ask.MaxTokens, ask.MaxCompletionTokens),
		usage:        ask.StreamOptions.IncludeUsage,
		everyUsage:   ask.StreamOptions.IncludeUsage && ask.StreamOptions.ContinuousUsageStats,
		promptTokens: countTokens(ask.Prompt) + countTokens(ask.Messages),
	}
	model, _ := json.Marshal(ask.Model)
	object, choice := "text_completion", `"text":" w0001","logprobs":null`
	if ask.Messages != nil {
		object, choice = "chat.completion.chunk", `"delta":{"content":" w0001"},"logprobs":null`
	}
	one.before = fmt.Appendf(nil, `data: {"id":"cmpl-%d","object":%q,"created":%d,"model":%s,"choices":[`,
		len(s.truth), object, arrivedNs/1e9, model)
	one.after = fmt.Appendf(nil, `{"index":0,%s,"finish_reason":null}`, choice)
	s.truth = append(s.truth, one.truth)
	s.write(c, []byte(streamHead))
	if ask.Messages != nil {
		s.write(c, chunk(one.event([]byte(`{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}`), false)))
	}
	s.schedule.push(event{onGrid(arrivedNs + s.plan.firstDelayNs(s.random)), one})
}

// countTokens takes a list for token ids, and of anything else each byte for a token.
func countTokens(prompt json.RawMessage) int {
	if len(prompt) > 0 && prompt[0] == '[' {
		return bytes.Count(prompt, []byte(",")) + 1
	}
	return len(prompt)
}

func (s *server) sendToken(e event) {
	one := e.stream
	t := one.truth
	data := chunk(one.event(one.after, one.everyUsage))
	t.tokens++
	t.lastNs = time.Now().UnixNano()
	if t.tokens == 1 {
		t.firstNs = t.lastNs
	}
	s.write(one.connection, data)
	if t.tokens < one.tokens {
		s.schedule.push(event{onGrid(e.dueNs + s.plan.gapNs(s.random)), one})
		return
	}
	tail := []byte{}
	if one.usage {
		tail = chunk(one.event(nil, true))
	}
	tail = append(tail, chunk([]byte("data: [DONE]\n\n"))...)
	s.write(one.connection, append(tail, "0\r\n\r\n"...))
}

func (one *stream) event(choice []byte, withUsage bool) []byte {
	data := make([]byte, 0, len(one.before)+len(choice)+128)
	data = append(append(append(data, one.before...), choice...), ']')
	if withUsage {
		tokens := one.truth.tokens
		if choice != nil {
			tokens++
		}
		data = fmt.Appendf(data, `,"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`,
			one.promptTokens, tokens, one.promptTokens+tokens)
	}
	return append(data, "}\n\n"...)
}

func chunk(data []byte) []byte {
	out := make([]byte, 0, len(data)+12)
	out = strconv.AppendInt(out, int64(len(data)), 16)
	out = append(append(append(out, "\r\n"...), data...), "\r\n"...)
	return out
}
