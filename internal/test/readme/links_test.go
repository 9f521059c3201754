package readme

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	links    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	noAnchor = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// Links within the repository lead to a file, and to a heading of it.
func TestLinks(t *testing.T) {
	for _, document := range append(pages, "llms.txt") {
		for _, broken := range brokenLinks(document, read(t, document)) {
			t.Error(broken)
		}
	}
}

// brokenLinks checks the links of a document, which are relative to its folder.
func brokenLinks(document, text string) (broken []string) {
	for _, m := range links.FindAllStringSubmatch(text, -1) {
		target, anchor, _ := strings.Cut(m[1], "#")
		if strings.Contains(target, "://") {
			continue
		}

		there := text
		if target != "" {
			file := filepath.Join(root, path.Dir(document), target)
			if _, err := os.Stat(file); err != nil {
				broken = append(broken, fmt.Sprintf("%s: %s: %v", document, m[1], err))
				continue
			}
			content, _ := os.ReadFile(file) // a folder has no headings
			there = string(content)
		}

		if anchor != "" && !slices.Contains(anchors(there), anchor) {
			broken = append(broken, fmt.Sprintf("%s: %s: no heading #%s", document, m[1], anchor))
		}
	}

	return broken
}

// anchors are the headings of a document as GitHub makes links of them.
func anchors(text string) (all []string) {
	fenced := false
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		if heading := strings.TrimLeft(line, "#"); heading != line && !fenced {
			heading = noAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			all = append(all, strings.ReplaceAll(heading, " ", "-"))
		}
	}
	return all
}
