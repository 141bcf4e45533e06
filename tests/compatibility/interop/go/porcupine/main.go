// Checks with Porcupine, a checker of linearizability by others, that the partitions of a history were logs: every
// append took effect at one moment between its call and its answer, at the end of the log, and every read saw a record
// that had been appended by then.
//
//	porcupine FILE
//
// FILE has one operation as JSON on each line. It ends with 1 if a partition was no log, with 2 if that is not decided in
// time.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

const limit = 120 * time.Second

// Times are in nanoseconds of one monotonic clock.
type operation struct {
	Partition int    `json:"partition"`
	Kind      string `json:"kind"` // "append" or "read"
	Offset    int    `json:"offset"`
	Value     string `json:"value"`
	Call      int64  `json:"call"`
	Return    int64  `json:"return"`
}

// The state is the length of the log. Two appends at one offset are never both possible, so the values need no state.
func logOf(values map[int]string) porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return 0 },
		Step: func(state, input, _ interface{}) (bool, interface{}) {
			length, asked := state.(int), input.(operation)
			if asked.Kind == "append" {
				return asked.Offset == length, length + 1
			}
			return asked.Offset < length && values[asked.Offset] == asked.Value, length
		},
	}
}

func main() {
	file, err := os.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	partitions := map[int][]porcupine.Operation{}
	values := map[int]map[int]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var one operation
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			panic(err)
		}
		if one.Kind == "append" {
			if values[one.Partition] == nil {
				values[one.Partition] = map[int]string{}
			}
			values[one.Partition][one.Offset] = one.Value
		}
		client := len(partitions[one.Partition]) // each is one of its own: they overlap
		partitions[one.Partition] = append(partitions[one.Partition],
			porcupine.Operation{ClientId: client, Input: one, Call: one.Call, Return: one.Return})
	}
	code := 0
	for number, operations := range partitions {
		result := porcupine.CheckOperationsTimeout(logOf(values[number]), operations, limit)
		fmt.Printf("partition %d: %d operations: %s\n", number, len(operations), result)
		if result == porcupine.Illegal {
			code = 1
		} else if result == porcupine.Unknown && code == 0 {
			code = 2
		}
	}
	os.Exit(code)
}
