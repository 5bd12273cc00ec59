/** The keyboard shortcuts, on one sheet. */
import { Kbd, Modal } from '@mantine/core'

const shortcuts: [string, string][] = [
  ['Ctrl K or /', 'Search resources and actions'],
  ['G', 'Go to the overview'],
  ['E', 'Go to the environment'],
  ['D', 'Go to the deployments of the environment'],
  ['?', 'Show these shortcuts'],
  ['Esc', 'Close the dialog or menu'],
]

export const Help = ({ onClose }: { onClose(): void }) => (
  <Modal opened onClose={onClose} title="Keyboard shortcuts" closeButtonProps={{ 'aria-label': 'Close' }}>
    <dl className="facts">
      {shortcuts.map(([keys, what]) => (
        <div key={keys} style={{ display: 'contents' }}>
          <dt>
            <Kbd>{keys}</Kbd>
          </dt>
          <dd>{what}</dd>
        </div>
      ))}
    </dl>
  </Modal>
)
