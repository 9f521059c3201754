//go:build race

package words

const raceDetector = true
