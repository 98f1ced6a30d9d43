<?php
// A page that costs CPU: renders a small table of contents over and over, from once to twelve times.
// The request's path chooses the cost, so that a load over page.php?p=0 to 59 has costs spread over an order of
// magnitude.
$page = isset($_GET['p']) ? (int) $_GET['p'] : 0;
$rounds = 1 + ($page * 11) % 12;
mt_srand($page);
$html = '';
for ($round = 0; $round < $rounds; $round++) {
    $text = '';
    for ($i = 0; $i < 6000; $i++) {
        $text .= chr(97 + mt_rand(0, 25)) . ($i % 7 === 6 ? ' ' : '');
    }
    $words = explode(' ', $text);
    sort($words);
    $html = '';
    foreach ($words as $word) {
        $html .= '<li>' . htmlspecialchars(ucfirst(preg_replace('/[aeiou]+/', '*', $word))) . ' ' . hash('sha256', $word) . '</li>';
    }
}
header('Content-Type: text/html; charset=utf-8');
echo "<!doctype html><title>Page $page</title><ul>$html</ul>";
