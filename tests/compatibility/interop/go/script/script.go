// Package script is what the programs of this directory share: a task comes as JSON in the second argument,
// records and commands come as lines on stdin, and what happened goes out as JSON lines on stdout.
// Keys and values travel as base64 and null is not empty, since encoding/json does just that with []byte.
package script

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// Task is the union of what the programs can be told; each reads the fields that concern it.
type Task struct {
	Bootstrap  string   `json:"bootstrap"`
	Topic      string   `json:"topic"`
	Group      string   `json:"group"`
	Count      int      `json:"count"`
	Codec      string   `json:"codec"`
	Idempotent bool     `json:"idempotent"`
	Acks       int      `json:"acks"`
	Style      string   `json:"style"`
	Version    string   `json:"version"`
	Settings   []string `json:"settings"`

	// Of programs with transactions.
	TransactionalID string `json:"transactional_id"`
	TimeoutMs       int    `json:"timeout_ms"`
	Target          string `json:"target"`
	SessionMs       int    `json:"session_ms"`
}

type Header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

type Record struct {
	Partition   int32    `json:"partition"`
	Offset      int64    `json:"offset"`
	TimestampMs int64    `json:"timestamp_ms"`
	Key         []byte   `json:"key"`
	Value       []byte   `json:"value"`
	Headers     []Header `json:"headers"`
}

func (r Record) Time() time.Time { return time.UnixMilli(r.TimestampMs) }

// Asked is the verb and its task.
func Asked() (string, Task) {
	var task Task
	Check(json.Unmarshal([]byte(os.Args[2]), &task), "read the task")
	return os.Args[1], task
}

// Records are the lines of stdin up to its end.
func Records() []Record {
	var records []Record
	decoder := json.NewDecoder(os.Stdin)
	for decoder.More() {
		var record Record
		Check(decoder.Decode(&record), "read a record")
		records = append(records, record)
	}
	return records
}

// Command is a line that a transactional producer obeys.
type Command struct {
	Do        string `json:"do"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Value     string `json:"value"`
	Group     string `json:"group"`
	Offset    int64  `json:"offset"`
}

// Obey tells that the producer is ready, and then after each command of stdin how it ended.
func Obey(obey func(Command) error) {
	Tell(struct{}{})
	decoder := json.NewDecoder(os.Stdin)
	for decoder.More() {
		var command Command
		Check(decoder.Decode(&command), "read a command")
		if err := obey(command); err != nil {
			Tell(map[string]string{"error": err.Error()})
		} else {
			Tell(struct{}{})
		}
	}
}

// AskedToLeave is closed at the first line of stdin, or at its end.
func AskedToLeave() <-chan struct{} {
	asked := make(chan struct{})
	go func() {
		bufio.NewReader(os.Stdin).ReadString('\n')
		close(asked)
	}()
	return asked
}

var telling sync.Mutex

// Tell writes one line.
func Tell(what any) {
	line, err := json.Marshal(what)
	Check(err, "write a line")
	telling.Lock()
	defer telling.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

// Check ends the program when something went wrong.
func Check(err error, doing string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "could not %s: %v\n", doing, err)
		os.Exit(1)
	}
}

// Must is Check for a call that also returns something.
func Must[T any](value T, err error) T {
	Check(err, "go on")
	return value
}

// Refusal is the error as text; a call that should have been refused ends the program.
func Refusal(err error) string {
	if err == nil {
		Check(fmt.Errorf("it was not refused"), "be refused")
	}
	return err.Error()
}
