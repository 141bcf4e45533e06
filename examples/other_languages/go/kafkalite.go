// Package orders shows how a Go test has a broker of its own.
package orders

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

const readyWithin = 30 * time.Second

// Kafkalite starts a broker that ends with the test, and returns its bootstrap servers when clients may connect.
func Kafkalite(t *testing.T, more ...string) string {
	t.Helper()
	command := os.Getenv("KAFKALITE")
	if command == "" {
		command = "kafkalite"
	}
	ready := filepath.Join(t.TempDir(), "ready.json")
	arguments := []string{"serve", "--port", "0", "--in-memory", "--exit-with-parent", "--ready-file", ready}
	broker := exec.Command(command, append(arguments, more...)...)
	broker.Stderr = os.Stderr
	if err := broker.Start(); err != nil {
		t.Fatalf("kafkalite: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- broker.Wait() }()
	t.Cleanup(func() {
		_ = broker.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	servers, err := await(ready, ended)
	if err != nil {
		t.Fatalf("kafkalite: %v", err)
	}
	return servers
}

func await(ready string, ended chan error) (string, error) {
	end := time.After(readyWithin)
	for {
		if text, err := os.ReadFile(ready); err == nil {
			var found struct {
				Servers string `json:"bootstrap_servers"`
			}
			err = json.Unmarshal(text, &found)
			return found.Servers, err
		}
		select {
		case err := <-ended:
			ended <- err
			return "", fmt.Errorf("it ended: %v", err)
		case <-end:
			return "", fmt.Errorf("it was not ready within %v", readyWithin)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
