package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// answer is the fake model. It repeats the prompt, a word a chunk and a token a word, and
// says in the last chunk how many tokens that were, as the chat completions of OpenAI do.
func answer(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		MaxTokens int `json:"max_tokens"`
		Messages  []struct{ Content string }
	}

	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || len(ask.Messages) == 0 {
		http.Error(w, "want messages", http.StatusBadRequest)
		return
	}

	w.Header().Set("Content-Type", "text/event-stream")
	words := strings.Fields(ask.Messages[0].Content)
	prompt, said := len(words), words[:min(len(words), ask.MaxTokens)]
	for _, word := range said {
		fmt.Fprintf(w, "data: {\"choices\": [{\"delta\": {\"content\": %q}}]}\n\n", word+" ")
		if http.NewResponseController(w).Flush() != nil {
			return // the client has hung up
		}
	}

	fmt.Fprintf(w, "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": %d, \"completion_tokens\": %d, \"total_tokens\": %d}}\n\n",
		prompt, len(said), prompt+len(said))
	fmt.Fprint(w, "data: [DONE]\n\n")
}
