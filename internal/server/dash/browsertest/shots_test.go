package browsertest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

var (
	only  = flag.String("only", "", "take only the pictures whose `name` has this")
	shots = flag.String("shots", "", "write the pictures of the documentation into this `folder`")
	warm  = flag.Duration("warm", 6*time.Minute, "how long the demo runs before that, so that its charts are full")
)

// pictureBytesMax is how large a picture in the repository may be.
const pictureBytesMax = 300 << 10

// A picture is one of the documentation.
type picture struct {
	name, path, says string
	width, height    int64
	theme            string
}

func pictures() []picture {
	return []picture{
		{"overview", "#/", "viral:cat-video", 1440, 1000, "light"},
		{"overview-dark", "#/", "viral:cat-video", 1440, 1000, "dark"},
		{"overview-narrow", "#/", "viral:cat-video", 375, 812, "dark"},
		{"counter", "#/counter/default/views%3Ahome", "Different users", 1440, 1080, "light"},
		{"counter-dark", "#/counter/default/views%3Ahome", "Different users", 1440, 1080, "dark"},
		{"counter-narrow", "#/counter/default/views%3Ahome", "Different users", 375, 812, "light"},
		{"reactions", "#/counter/default/post%3A42", "users in all", 1440, 800, "light"},
		{"stock", "#/counter/default/stock%3Asneakers", "Available", 1440, 1000, "light"},
		{"counters", "#/counters", "post:42", 1440, 800, "light"},
		{"policies", "#/policies", "in force since", 1440, 1080, "light"},
		{"limits", "#/decided", "5 per 1s", 1440, 900, "light"},
		{"operations", "#/operations", "rules of deploy", 1440, 800, "light"},
	}
}

// The demo fills every page that the documentation shows, and the pictures are small
// enough for a repository. With -shots they are written there.
func TestScreenshots(t *testing.T) {
	c := exec.Command(binary, "demo", "--rate", "120")
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		_ = c.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	at := strings.Index(line, "http://")
	if err != nil || at < 0 {
		t.Fatalf("the demo says %q: %v", line, err)
	}
	url := strings.TrimSpace(line[at:])
	dir, all := t.TempDir(), pictures()
	if *shots == "" {
		all = all[3:6] // one page shows what there is to show
	}
	if *shots != "" {
		dir = *shots
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		<-time.After(*warm) // until there is something in the charts
	}
	for _, p := range all {
		if !strings.Contains(p.name, *only) {
			continue
		}
		b := open(t, p.width, p.height)
		b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: p.theme}}))
		b.to(url + p.path)
		b.says("#live", "Live")
		b.says("main", p.says)
		if *shots != "" {
			<-time.After(3 * time.Second) // for a few beats of the stream
		}
		b.save(filepath.Join(dir, p.name+".png"))
	}
}

// The overview of a store that servers share, for the documentation. One of them was lost.
func TestServersScreenshot(t *testing.T) {
	url := redis(t)
	servers := []*server{serveOver(t, url), serveOver(t, url), serveOver(t, url)}
	dir := t.TempDir()
	if *shots != "" {
		dir = *shots
	}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	for i, s := range servers[:2] {
		load.Go(func() {
			tick := time.NewTicker(time.Duration(4+3*i) * time.Millisecond)
			defer tick.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				s.call("POST", fmt.Sprintf("/counters/page:%d/increment", n%5), "")
				<-tick.C
			}
		})
	}
	b := open(t, 1440, 1000)
	b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "light"}}))
	b.to(servers[0].url + "/")
	b.says("main", "3 servers")
	if err := servers[2].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	b.says("tr.gone", "Silent for")
	if *shots != "" {
		<-time.After(*warm / 4)
	}
	b.save(filepath.Join(dir, "servers.png"))
}

// save writes what the tab shows into a file, as small as a picture for people may be.
func (b *tab) save(path string) {
	b.t.Helper()
	var raw []byte
	b.do(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		raw, err = page.CaptureScreenshot().WithFormat(page.CaptureScreenshotFormatPng).Do(ctx)
		return err
	}))
	whole, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		b.t.Fatalf("%s: %v", path, err)
	}
	var small bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, palette(whole)); err != nil {
		b.t.Fatal(err)
	}
	if small.Len() > pictureBytesMax {
		b.t.Errorf("%s has %d bytes, more than %d", path, small.Len(), pictureBytesMax)
	}
	if err := os.WriteFile(path, small.Bytes(), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// palette returns a picture in its 256 most common colours: of a page, the others are edges
// of letters and lines, and nobody sees the difference.
func palette(whole image.Image) *image.Paletted {
	seen := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(whole.At(x, y)).(color.RGBA) }
	area := whole.Bounds()
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			seen[at(x, y)]++
		}
	}
	common := slices.SortedFunc(maps.Keys(seen), func(a, b color.RGBA) int {
		return cmp.Or(seen[b]-seen[a], cmp.Compare(uint32(a.R)<<16|uint32(a.G)<<8|uint32(a.B), uint32(b.R)<<16|uint32(b.G)<<8|uint32(b.B)))
	})
	colours := make(color.Palette, 0, 256)
	for _, c := range common[:min(len(common), 256)] {
		colours = append(colours, c)
	}
	near := map[color.RGBA]uint8{}
	for c := range seen {
		near[c] = uint8(colours.Index(c))
	}
	small := image.NewPaletted(area, colours)
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			small.SetColorIndex(x, y, near[at(x, y)])
		}
	}
	return small
}
